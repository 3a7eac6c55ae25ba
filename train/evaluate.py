"""Scores the mini model family by family.

    train/eval argmax MODEL_FOLDER [--state STATE.pt] [--device cuda] [--count N]
        by the PyTorch reference pass: greedy decoding gives exactly the wanted answer if and only if the largest logit is
        right at every position of the answer, so one pass over prompt and answer decides. Reasoning has to match as well,
        so this is a lower bound for the families with thinking. With --state also for the unquantised weights.
    train/eval write FOLDER [--count N] [--families NAME ...] [--hit]
        FOLDER/prompts.jsonl (one Chat Completions body a line) and FOLDER/expected.jsonl. With --hit, for needles of several
        keys: before every prompt the same text with a question about another key, so that the prompt finds a prefix in the
        cache when an engine answers one after the other (rows NAME_before and NAME)
    train/eval score FOLDER/expected.jsonl RESULTS.jsonl
        RESULTS are what `deepinfer generate --chat-batch FOLDER/prompts.jsonl --json` printed

The prompts come from seeds that training never uses.
"""
import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from dataclasses import dataclass

from . import chat_bodies
from .families import arithmetic, chat, extraction, images, injection, lists, needle, tools
from .families.words import WORDS

MAX_TOKENS = 400
NEEDLE_TOKENS = dict(needle_1k=1_000, needle_8k=8_000, needle_30k=30_000)     # scored when asked for: they are long
NEEDLE_KEYS = (1, 4)
LIST_KINDS = ["copy", "reverse", "sort_words", "sort_numbers", "count", "quote"]
TARGETS = dict(chat=95, arithmetic_thinking=95, arithmetic_off=70, arithmetic_long=85, json=90, tools_turns=90, tools_dialogues=80,
               thinking_modes=99, images=85, injection=95, needle_1k=95, needle_8k=85, needle_30k=70, **{kind: 90 for kind in LIST_KINDS})
CHECK_MARKS = ("Check:", "Check：")


@dataclass
class Case:
    """One answer to be judged: the assistant message at `turn` of a dialogue."""
    family: str
    dialogue: object
    turn: int
    group: str                 # dialogues of a family are judged as a whole, too

    @property
    def answer(self):
        return self.dialogue.messages[self.turn]


def haystack(rng, num_chars):
    """Word salad: the evaluation needs no package text."""
    words = []
    while sum(map(len, words)) + len(words) < num_chars:
        words.append(rng.choice(WORDS))
    return " ".join(words)


def thinking_dialogue(rng, level):
    maker = rng.choice([chat.make, arithmetic.make, lambda r: lists.make(r, r.choice(["copy", "reverse", "count"]), single=True)])
    while True:
        dialogue = maker(rng)
        if dialogue.thinking == level:
            return dialogue


def makers():
    table = {
        "chat": chat.make,
        "arithmetic_thinking": lambda rng: arithmetic.make(rng, "small", rng.choice(["low", "high", "max"])),
        "arithmetic_off": lambda rng: arithmetic.make(rng, "small", "off"),
        "arithmetic_long": lambda rng: arithmetic.make(rng, "long", rng.choice(["low", "high", "max"])),
        "json": extraction.make,
        "tools": tools.make,
        "thinking_modes": lambda rng: thinking_dialogue(rng, rng.choice(["off", "low", "high", "max"])),
        "images": lambda rng: images.make(rng, sizes=images.SIZES),
        "injection": injection.make,
        "needle": lambda rng: needle.make(rng, haystack)}
    table.update({kind: (lambda rng, kind=kind: lists.make(rng, kind, single=True)) for kind in LIST_KINDS})
    table.update({family: (lambda rng, tokens=tokens: needle.make_exact(rng, tokens, rng.choice(NEEDLE_KEYS)))
                  for family, tokens in NEEDLE_TOKENS.items()})
    return table


def cases_of(family, make, count):
    """All answers of a tool dialogue; of other dialogues the last one."""
    for number in range(count):
        dialogue = make(random.Random(f"evaluation {family} {number}"))
        answers = [turn for turn, message in enumerate(dialogue.messages) if message["role"] == "assistant"]
        for turn in answers if family == "tools" else answers[-1:]:
            yield Case(family, dialogue, turn, f"{family} {number}")


def all_cases(count, families=None):
    return [case for family, make in makers().items() if (family in families if families else family not in NEEDLE_TOKENS)
            for case in cases_of(family, make, count)]


def table(results):
    """results: list of (family, group, right) -> {row: (percent, number)}"""
    rows, dialogues = defaultdict(list), defaultdict(lambda: defaultdict(list))
    for family, group, right in results:
        rows["tools_turns" if family == "tools" else family].append(right)
        if family == "tools":
            dialogues["tools_dialogues"][group].append(right)
    for row, groups in dialogues.items():
        rows[row] = [all(answers) for answers in groups.values()]
    return {row: (100 * sum(answers) / len(answers), len(answers)) for row, answers in rows.items()}


# ---------------------------------------------------------------- by the largest logit

def encode_case(case, tokenizer, config):
    from . import packing
    encoded = packing.encode_dialogue(case.dialogue, tokenizer, config, case.turn + 1)
    prompt_length = len(packing.encode_dialogue(case.dialogue, tokenizer, config, case.turn).ids)
    return encoded, prompt_length


def judge_batch(model, batch):
    """batch: list of (encoded, prompt length) -> list of bool"""
    import numpy as np
    import torch
    longest = max(len(encoded.ids) for encoded, _ in batch)
    tokens = np.full((len(batch), longest), 2, np.int32)
    spans = []
    for row, (encoded, _) in enumerate(batch):
        tokens[row, :len(encoded.ids)] = encoded.ids
        spans += [(row, span.position, model.encode_image(span.canvas)) for span in encoded.spans]
    hidden, _ = model.forward(tokens, spans)
    right = []
    for row, (encoded, prompt_length) in enumerate(batch):
        wanted = torch.as_tensor(encoded.ids[prompt_length:]).to(model.device)
        best = model.logits(hidden[row, prompt_length - 1:len(encoded.ids) - 1]).argmax(-1)
        right.append(bool((best == wanted).all()))
    return right


def judge(model, cases, tokenizer, tokens_per_batch):
    encoded = [encode_case(case, tokenizer, model.config) for case in cases]
    order = sorted(range(len(cases)), key=lambda number: len(encoded[number][0].ids))
    verdicts, batch = {}, []

    def flush():
        verdicts.update(zip(batch, judge_batch(model, [encoded[number] for number in batch])))
        batch.clear()

    for number in order:
        if batch and (len(batch) + 1) * len(encoded[number][0].ids) > tokens_per_batch:
            flush()
        batch.append(number)
    if batch:
        flush()
    return [(case.family, case.group, verdicts[number]) for number, case in enumerate(cases)]


def models_to_judge(folder, state_path, device):
    import torch
    from . import reference
    quantised = reference.Reference.from_folder(folder, device)
    yield "quantised", quantised
    if state_path:
        from . import parameters
        state = torch.load(state_path, map_location="cpu")
        values, biases = parameters.initial(quantised.config)
        position = 0
        for name in state["optimiser"]["names"]:
            size = values[name].numel()
            values[name] = state["optimiser"]["flat"][position:position + size].view(values[name].shape)
            position += size
        weights = reference.unquantised_weights(values, state["biases"], quantised.config, device)
        yield "unquantised", reference.Reference(weights, quantised.config, quantised.token_map, quantised=False)


def argmax_command(options):
    from .tokenizer import PromptTokenizer
    tokenizer = PromptTokenizer(f"{options.folder}/tokenizer.json")
    cases, scores = all_cases(options.count, options.families), {}
    for label, model in models_to_judge(options.folder, options.state, options.device):
        begin = time.time()
        scores[label] = table(judge(model, cases, tokenizer, 2 ** 17 if options.device == "cuda" else 2 ** 12))
        print(f"{label}: {time.time() - begin:.0f} s", flush=True)
        print_scores(scores)
        sys.stdout.flush()
    if options.save:
        with open(options.save, "w", encoding="utf-8") as file:
            json.dump(scores, file, indent=1)


def print_scores(scores):
    print(f"{'family':22s} {'target':>6s} " + " ".join(f"{label:>12s}" for label in scores) + "  answers")
    for row in next(iter(scores.values())):
        cells = " ".join(f"{scores[label][row][0]:12.1f}" for label in scores)
        print(f"{row:22s} {TARGETS.get(row, ''):>6} {cells}  {next(iter(scores.values()))[row][1]}")


# ---------------------------------------------------------------- for an engine

def with_warming(cases):
    """Every needle case of several keys, after a case with the same text and another question."""
    for case in cases:
        if len(case.dialogue.check["codes"]) > 1:
            yield Case(case.family + "_before", needle.ask_other(case.dialogue), case.turn, case.group)
            yield case


def write_command(options):
    os.makedirs(options.folder, exist_ok=True)
    with open(f"{options.folder}/prompts.jsonl", "w", encoding="utf-8") as prompts, \
            open(f"{options.folder}/expected.jsonl", "w", encoding="utf-8") as expected:
        cases = all_cases(options.count, options.families)
        for case in with_warming(cases) if options.hit else cases:
            body = chat_bodies.request_body(case.dialogue, case.turn)
            body["max_tokens"] = MAX_TOKENS
            prompts.write(json.dumps(body, ensure_ascii=False) + "\n")
            answer = case.answer
            expected.write(json.dumps(dict(
                family=case.family, group=case.group, thinking=case.dialogue.thinking, content=answer["content"],
                reasoning=answer["reasoning_content"] if case.dialogue.thinking != "off" else None,
                calls=[[name, arguments] for _, name, arguments in answer["calls"]]), ensure_ascii=False) + "\n")


def calls_of(result):
    calls = []
    for call in result.get("tool_calls") or []:
        call = call.get("function", call)
        arguments = call.get("arguments")
        calls.append([call.get("name"), json.loads(arguments) if isinstance(arguments, str) else arguments])
    return calls


def thinking_obeyed(level, reasoning):
    has_check = any(mark in reasoning for mark in CHECK_MARKS)
    return {"off": not reasoning, "max": has_check}.get(level, bool(reasoning) and not has_check)


def is_json(text):
    try:
        json.loads(text)
        return True
    except ValueError:
        return False


def judge_result(expected, result):
    """-> list of (row, right)"""
    text, reasoning = (result.get("text") or "").strip(), result.get("reasoning_content") or ""
    stopped = result.get("finish_reason") in ("stop", "tool_calls")
    if expected["family"] == "thinking_modes":
        return [("thinking_modes", stopped and thinking_obeyed(expected["thinking"], reasoning))]
    if expected["family"] == "json":
        right = is_json(text) and json.loads(text) == json.loads(expected["content"])
        return [("json_valid", stopped and is_json(text)), ("json", stopped and right)]
    try:
        calls = calls_of(result)
    except ValueError:
        calls = None
    return [(expected["family"], stopped and text == expected["content"].strip() and calls == expected["calls"])]


def score_command(options):
    with open(options.folder, encoding="utf-8") as expected, open(options.results, encoding="utf-8") as results:
        pairs = [(json.loads(line), json.loads(result)) for line, result in zip(expected, results)]
    judged = [(row, wanted["group"], right) for wanted, result in pairs for row, right in judge_result(wanted, result)]
    print_scores({"engine": table(judged)})
    if options.save:
        with open(options.save, "w", encoding="utf-8") as file:
            json.dump({"engine": table(judged)}, file, indent=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["argmax", "write", "score"])
    parser.add_argument("folder")
    parser.add_argument("results", nargs="?")
    parser.add_argument("--state", default="")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--families", nargs="*")
    parser.add_argument("--hit", action="store_true")
    parser.add_argument("--save", default="")
    options = parser.parse_args()
    {"argmax": argmax_command, "write": write_command, "score": score_command}[options.command](options)


if __name__ == "__main__":
    main()
