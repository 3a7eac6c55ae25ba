#!/usr/bin/env python3
"""Runs llguidance or xgrammar on the cases of `deepinfer bench grammar --peer`: the same schemas, the same tokens, one
thread.

Usage: bench/peers/grammar_peer.py CASES.jsonl TOKENIZER.json[.gz] llguidance|xgrammar. A line of CASES: {"schema",
"tests": [{"tokens", "valid"}]}. Prints "name value" lines; CPU time of the thread, in microseconds. A case that takes
longer than a minute counts as refused, and its time not at all; so does one that ends the process.
"""
import gzip
import json
import multiprocessing
import sys
import tempfile
import time

CASE_SECONDS = 60


def open_text(path):
    return gzip.open(path, "rt") if path.endswith(".gz") else open(path)


class Llguidance:
    def __init__(self, tokenizer_path):
        import llguidance.numpy
        from llguidance import LLMatcher, LLTokenizer
        self.numpy, self.matcher_type = llguidance.numpy, LLMatcher
        with open_text(tokenizer_path) as text:
            self.tokenizer = LLTokenizer(text.read())
        self.row = self.numpy.allocate_token_bitmask(1, self.tokenizer.vocab_size)

    def compile(self, schema):
        matcher = self.matcher_type(self.tokenizer, self.matcher_type.grammar_from_json_schema(schema))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher

    def start(self, matcher):
        matcher.reset()
        return matcher

    def step(self, matcher, token):
        self.numpy.fill_next_token_bitmask(matcher, self.row, 0)
        return bool(self.row[0, token // 32] >> (token % 32) & 1) and matcher.consume_token(token)

    def is_accepting(self, matcher):
        return matcher.is_accepting()


class Xgrammar:
    END = 1  # end of sentence

    def __init__(self, tokenizer_path):
        import xgrammar
        from transformers import PreTrainedTokenizerFast
        self.xgrammar = xgrammar
        with open_text(tokenizer_path) as text, tempfile.NamedTemporaryFile("w", suffix=".json") as plain:
            plain.write(text.read())
            plain.flush()
            tokenizer = PreTrainedTokenizerFast(tokenizer_file=plain.name)
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, stop_token_ids=[self.END])
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.row = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self.words = self.row.numpy()[0]  # the same memory

    def compile(self, schema):
        return self.compiler.compile_json_schema(schema, any_whitespace=True, strict_mode=False)

    def start(self, compiled):
        return self.xgrammar.GrammarMatcher(compiled)

    def allows(self, matcher, token):
        matcher.fill_next_token_bitmask(self.row, 0)
        return bool(int(self.words[token // 32]) >> (token % 32) & 1)

    def step(self, matcher, token):
        return self.allows(matcher, token) and matcher.accept_token(token)

    def is_accepting(self, matcher):
        return self.allows(matcher, self.END)


def judge(peer, case, connection):
    schema, out = json.dumps(case["schema"]), {"masks": [], "firsts": [], "accepted": [], "refused": True}
    begin = time.thread_time_ns()
    try:
        compiled = peer.compile(schema)
    except Exception:  # of several types, by version
        connection.send(out)
        return
    compiled_us = (time.thread_time_ns() - begin) / 1e3
    out["refused"] = False
    for test in case["tests"]:
        accepted, first = True, True
        matcher = peer.start(compiled)
        for token in test["tokens"]:
            begin = time.thread_time_ns()
            moved = peer.step(matcher, token)
            us = (time.thread_time_ns() - begin) / 1e3
            out["masks"].append(us)
            if first:
                out["firsts"].append(compiled_us + us)
            first = False
            if not moved:
                accepted = False
                break
        out["accepted"].append(bool(accepted and peer.is_accepting(matcher)))
    connection.send(out)


def run_apart(peer, case):
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(False)
    process = context.Process(target=judge, args=(peer, case, sender))
    process.start()
    sender.close()
    try:
        return receiver.recv() if receiver.poll(CASE_SECONDS) else None
    except EOFError:
        return None
    finally:
        process.kill()
        process.join()


def main():
    peer = {"llguidance": Llguidance, "xgrammar": Xgrammar}[sys.argv[3]](sys.argv[2])
    masks, firsts, schemas, right, given_up, accepted_wrongly, rejected_wrongly = [], [], 0, 0, 0, 0, 0
    with open(sys.argv[1]) as lines:
        for line in lines:
            case = json.loads(line)
            schemas += 1
            out = run_apart(peer, case)
            given_up += out is None
            if out is None or out["refused"]:
                continue
            masks += out["masks"]
            firsts += out["firsts"]
            verdicts = list(zip(out["accepted"], [test["valid"] for test in case["tests"]]))
            accepted_wrongly += sum(accepted and not valid for accepted, valid in verdicts)
            rejected_wrongly += sum(valid and not accepted for accepted, valid in verdicts)
            right += all(accepted == valid for accepted, valid in verdicts)
    masks.sort()
    firsts.sort()
    at = lambda values, share: values[int(share * (len(values) - 1))]
    print(f"right {100 * right / schemas}")
    print(f"given_up {given_up}")
    print(f"accepted_wrongly {accepted_wrongly}")
    print(f"rejected_wrongly {rejected_wrongly}")
    print(f"mean {sum(masks) / len(masks)}")
    for name, share in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)]:
        print(f"{name} {at(masks, share)}")
    for name, share in [("first_p50", 0.5), ("first_p99", 0.99)]:
        print(f"{name} {at(firsts, share)}")


if __name__ == "__main__":
    main()
