#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random model output through `deepinfer decode --compat recipe` and through deepseek-recipe 0.2.0, compared event by event.

Usage: response_differential.py --tokenizer tokenizer_v41.json.gz [--program PATH] [--count N] [--seed S] [--keep FILE]
Needs `pip install deepseek-recipe==0.2.0`. Streams that meet one of the original's known bugs (listed in KNOWN_BUGS)
are counted apart, not compared. Exit status 1 when an answer differs.
"""
import argparse
import collections
import gzip
import json
import random
import re
import subprocess
import sys

DSML = "\uff5cDSML\uff5c"
THINK_END = "</think>"
SPECIALS = [DSML, THINK_END]
OTHER_SPECIALS = ["<think>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
                  "<\uff5cref\uff5c>", "<\uff5c/ref\uff5c>", "<\uff5cbox\uff5c>", "<\uff5clatest_reminder\uff5c>"]

# Where ours is right on purpose; the first that fits names the reason.
KNOWN_BUGS = [
    ("newline after a failed match", re.compile(r"<[/\uff5cDSMLthink]*\n+<")),
    ("parameter name with a space, a quote or an escape", re.compile(r'parameter name="(?:[^"]*[ \\\x00-\x1f]|[^"]*"(?![ >])|[^"]*$)')),
    ("real U+FFFD at the end of a piece", re.compile("\ufffd")),
]

WORDS = ["Hello", " world", "\n", "\n\n", " ", ". ", "a", "b", "abc", "END", "\u7ed3\u675f", "\u5929\u6c14", "\U0001f980", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "e\u0301",
         "<", "</", "<<", "</ ", "/think>", "<think>", "</thi", "<\uff5c", "\uff5c", "<\uff5cDSM", "</\uff5cDSML", "calls>", " calls>",
         "invoke name=\"", "parameter name=", "string=\"true\">", "{", "}", "[", "]", "{\"a\": 1}", "```json\n", "```\n", "\n```",
         "\"", "\\", "\t", "\r\n", "\x00", "\u0085", "\u2028", "123", " 45", "\u0663", "x" * 20, "true\">", "false\">", ">", "=", ", "]
STOPS = ["END", "\n", "\n\n", "ab", "abc", "</", "\u7ed3\u675f", "b", "}", "``", "hello", "aab", " w"]
NAMES = ["f", "g", "get_weather", "get", "ns::get", "x::y", "apply_patch", "tool_search", "", "n\u00e4me"]
KEYS = ["a", "b", "city", "input", "q", "k\u00e9y", "", "a.b", "x-y"]
JSONS = ["1", "1.50", "true", "null", "[1, 2]", "{\"k\": \"v\"}", "12345678901234567890123", "-0", "1e400", "hello", "{\"a\": ", "\"s\""]


def random_text(rng, length):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, length)))


def call_tokens(rng, spelling):
    """One call as a list of strings; a control token is its own item."""
    invoke, parameter = ("invoke", "parameter") if spelling == "v4" else (" invoke", " parameter")
    out = ["<", DSML, f'{invoke} name="{rng.choice(NAMES)}">\n']
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        if rng.random() < 0.5:
            kind, value = "true", random_text(rng, 6)
        else:
            kind, value = "false", rng.choice(JSONS)
        if rng.random() < 0.2:
            value = rng.choice(['{"input": "abc\\n\\u00e9\\ud83e\\udd80"}', 'abc\\n\\t"quoted" \\ud83d x \\', "*** Begin Patch\n"])
        attributes = f'name="{rng.choice(KEYS)}" string="{kind}"'
        if rng.random() < 0.1:
            attributes = rng.choice(['name="a"', "name=a", f'name=a string="{kind}"', f'name="a" type="x" string="{kind}"', 'name="a" string="maybe"',
                                     f'name="a"  string="{kind}"', f'name= "a" string="{kind}"', f'name="a" string={kind}', 'name="a" '])
        out += ["<", DSML, f"{parameter} {attributes}>", value, "</", DSML, f"{parameter}>\n"]
    return out + ["</", DSML, f"{invoke}>\n"]


def block_tokens(rng):
    spelling = rng.choice(["v4", "v41", "v41"])
    calls = "tool_calls" if spelling == "v4" else " calls"
    if rng.random() < 0.05:
        calls = "function_calls"
    out = ["<", DSML, f"{calls}>\n"]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        out += call_tokens(rng, spelling)
    return out + ["</", DSML, f"{calls}>"]


def mutate(rng, parts):
    parts = list(parts)
    for _ in range(rng.choice([0, 0, 1, 1, 2, 4])):
        if not parts:
            break
        i = rng.randrange(len(parts))
        kind = rng.randrange(7)
        if kind == 0:
            del parts[i]
        elif kind == 1:
            parts.insert(i, parts[rng.randrange(len(parts))])
        elif kind == 2:
            parts.insert(i, random_text(rng, 4))
        elif kind == 3:
            parts.insert(i, rng.choice(SPECIALS + OTHER_SPECIALS))
        elif kind == 4:
            parts = parts[: i + 1]
        elif kind == 5 and parts[i] not in SPECIALS and parts[i]:
            cut = rng.randrange(len(parts[i]))
            parts[i] = parts[i][:cut] + parts[i][cut + 1:]
        elif kind == 6:
            j = rng.randrange(len(parts))
            parts[i], parts[j] = parts[j], parts[i]
    return parts


def random_setup(rng):
    setup = {"thinking": rng.random() < 0.5}
    setup["tools"] = rng.random() < 0.6
    setup["json"] = rng.random() < 0.15
    setup["required"] = setup["tools"] and not setup["thinking"] and rng.random() < 0.1
    if rng.random() < 0.3:
        setup["stop"] = list(dict.fromkeys(rng.choice(STOPS) for _ in range(rng.randint(1, 3))))
    if not setup["tools"] and not setup["json"] and rng.random() < 0.15:
        setup["prefix"] = rng.choice([["Once", "r"], ["", "half"], ["", ""], ["Once", ""]])
    setup["include_usage"] = rng.random() < 0.2
    setup["stream"] = rng.random() < 0.9
    setup["logprobs"] = rng.random() < 0.2
    setup["custom"] = setup["tools"] and rng.random() < 0.2
    setup["namespace"] = setup["tools"] and rng.random() < 0.2
    setup["search"] = setup["tools"] and rng.random() < 0.15
    setup["model"] = rng.choice(["DeepSeek-V4.1-Flash"] * 3 + ["DeepSeek-V4-Pro"])
    return setup


def request_of(setup, protocol):
    thinking = setup["thinking"]
    request = {"model": setup["model"], "stream": setup["stream"]}
    names = ["f", "get_weather"]
    if protocol == "chat":
        request["messages"] = [{"role": "user", "content": "json"}]
        if "prefix" in setup:
            content, reasoning = setup["prefix"]
            request["messages"].append({"role": "assistant", "content": content, "reasoning_content": reasoning, "prefix": True})
        request["thinking"] = {"type": "enabled" if thinking else "disabled"}
        if setup["tools"]:
            request["tools"] = [{"type": "function", "function": {"name": n}} for n in names]
        if setup["required"]:
            request["tool_choice"] = "required"
        if setup["json"]:
            request["response_format"] = {"type": "json_object"}
        if "stop" in setup:
            request["stop"] = setup["stop"]
        if setup["include_usage"] and setup["stream"]:
            request["stream_options"] = {"include_usage": True}
        if setup["logprobs"]:
            request.update(logprobs=True, top_logprobs=2)
    elif protocol == "responses":
        if "stop" in setup or "prefix" in setup:
            return None
        request["input"] = "json"
        request["reasoning"] = {"effort": "high" if thinking else "none"}
        if setup["tools"]:
            request["tools"] = [{"type": "function", "name": n} for n in names]
            if setup["custom"]:
                request["tools"].append({"type": "custom", "name": "apply_patch"})
            if setup["namespace"]:
                request["tools"].append({"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "get"}]})
            if setup["search"]:
                request["tools"].append({"type": "tool_search", "execution": "client"})
        if setup["required"]:
            request["tool_choice"] = "required"
        if setup["json"]:
            request["text"] = {"format": {"type": "json_object"}}
        if setup["logprobs"]:
            request["top_logprobs"] = 2
    else:
        if setup["json"] or "prefix" in setup:
            return None
        request.update(max_tokens=100, messages=[{"role": "user", "content": "json"}])
        request["thinking"] = {"type": "enabled" if thinking else "disabled"}
        if setup["tools"]:
            request["tools"] = [{"name": n, "input_schema": {"type": "object"}} for n in names]
        if setup["required"]:
            request["tool_choice"] = {"type": "tool", "name": "f"}
        if "stop" in setup:
            request["stop_sequences"] = setup["stop"]
    return request


def random_parts(rng, setup):
    """The model's output: text and control tokens. A spelled control token inside text is one more test."""
    parts = []
    if setup["thinking"]:
        parts += [random_text(rng, 8)]
        if rng.random() < 0.85:
            parts += ["\n" * rng.randint(0, 2), THINK_END, "\n" * rng.randint(0, 3)]
    if setup["json"] and rng.random() < 0.8:
        body = rng.choice(['{"a": 1}', "[1, 2]", '{"x": "END"}'])
        parts += rng.choice([[body], ["Sure! ", body, "\nbye"], ["```json\n", body, "\n```"], ["x\n```\n", body, "\n```\nbye"]])
    else:
        parts += [random_text(rng, 8)]
    if rng.random() < (0.8 if setup["tools"] else 0.3):
        parts += ["\n" * rng.randint(0, 3)] + block_tokens(rng)
        if rng.random() < 0.2:
            parts += [random_text(rng, 4)]
        if rng.random() < 0.1:
            parts += block_tokens(rng)
    if setup["required"]:
        parts = parts[3:] if rng.random() < 0.7 else parts
    return [p for p in mutate(rng, parts) if p]


class Ids:
    def __init__(self, tokenizer_json):
        import deepseek_recipe
        self.tokenizer = deepseek_recipe.Tokenizer.from_str(tokenizer_json)
        self.control = {t["content"]: t["id"] for t in json.loads(tokenizer_json)["added_tokens"]}

    def encode(self, rng, parts):
        ids, run = [], ""
        for part in parts + [None]:
            if part is None or part in self.control:
                ids += self.plain(rng, run)
                run = ""
                if part is not None:
                    ids.append(self.control[part])
            else:
                run += part
        return ids

    def plain(self, rng, text):
        out = []
        while text:
            cut = len(text) if rng.random() < 0.6 else rng.randint(1, len(text))
            piece, text = text[:cut], text[cut:]
            if any(spelling in piece for spelling in self.control):
                half = max(1, len(piece) // 2)  # spelled markup: encode it in pieces that hold no spelling
                out += self.plain_small(piece[:half]) + self.plain_small(piece[half:])
            else:
                out += self.tokenizer.encode(piece)
        return out

    def plain_small(self, piece):
        if len(piece) > 1 and any(spelling in piece for spelling in self.control):
            half = len(piece) // 2
            return self.plain_small(piece[:half]) + self.plain_small(piece[half:])
        return self.tokenizer.encode(piece)


def random_chunks(rng, setup, parts, ids):
    chunks = []
    ready = {"ready": {"prompt_tokens": rng.choice([0, 100, 7]), "cache_hit": rng.choice([0, 64, 5]), "fingerprint": rng.choice(["fp", None])}}
    if rng.random() < 0.7:
        chunks.append(ready)
    if rng.random() < 0.6:
        tokens = ids.encode(rng, parts)
        if rng.random() < 0.05:
            tokens = tokens[: rng.randint(0, len(tokens))]
        if rng.random() < 0.02:
            tokens.insert(rng.randint(0, len(tokens)), rng.choice([129280, 200000, 1]))
        step = rng.choice([1, 1, 3, 8, 10**6])
        while tokens:
            count = rng.randint(1, step) if step < 10**6 else len(tokens)
            chunk = {"ids": tokens[:count]}
            if setup["logprobs"]:
                chunk["logprobs"] = [[-0.5 * (i % 3) - 0.1, [[t, -0.25], [rng.randrange(1000), -1.75]][: rng.randint(0, 2)]] for i, t in enumerate(chunk["ids"])]
            chunks.append(chunk)
            tokens = tokens[count:]
    else:
        text = "".join(parts)
        step = rng.choice([1, 4, 20, 10**6])
        while text:
            count = rng.randint(1, step) if step < 10**6 else len(text)
            chunks.append({"text": text[:count], "tokens": rng.randint(0, 3)})
            text = text[count:]
    if not setup["logprobs"] and rng.random() < 0.1:  # a backend that changes between ids and text
        chunks = [c for c in chunks if "ready" in c]
        for part in parts:
            chunks.append({"ids": ids.encode(rng, [part])} if rng.random() < 0.5 else {"text": part, "tokens": 1})
    if chunks and rng.random() < 0.05:
        chunks.insert(rng.randrange(len(chunks)), {"ready": {"prompt_tokens": 9, "cache_hit": 3, "fingerprint": "late"}})
    if rng.random() < 0.93:
        chunks.append({"finish": rng.choice(["stop"] * 6 + ["length", "length", "content_filter"])})
    return chunks


class Oracle:
    def __init__(self, ids):
        import deepseek_recipe as d
        self.d, self.tokenizer = d, ids.tokenizer
        self.kinds = {
            "chat": (d.ChatCompletionRequest, d.ChatCompletionResponse),
            "responses": (d.ResponsesRequest, d.ResponsesResponse),
            "messages": (d.MessagesRequest, d.MessagesResponse),
        }

    def generator(self, protocol, request):
        kind, _ = self.kinds[protocol]
        options = self.d.ConversionOptions()
        parsed = kind(json.dumps(request))
        model = parsed.model
        if protocol == "responses":
            names, echo = parsed.namespace_tool_map(options), parsed.echo()
        converted = parsed.convert(options)
        made = kind.chunk_generator(converted, "resp-1", model)
        if protocol == "responses":
            made = made.with_namespace_tool_map(names).with_echo(echo)
        return made, converted.parsing_options, model

    def chunk(self, chunk):
        d = self.d
        if "ready" in chunk:
            r = chunk["ready"]
            usage = d.PromptUsage(prompt_tokens=r["prompt_tokens"], prompt_cache_hit_tokens=r["cache_hit"])
            return d.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=r["fingerprint"])
        if "ids" in chunk:
            logprobs = chunk.get("logprobs")
            if logprobs is not None:
                logprobs = [(l, [tuple(t) for t in top]) for l, top in logprobs]
            return d.InferenceChunk.tokens(chunk["ids"], logprobs)
        if "text" in chunk:
            return d.InferenceChunk.text(chunk["text"], chunk["tokens"])
        reason = {"stop": "Stop", "length": "Length", "content_filter": "ContentFilter"}[chunk["finish"]]
        return d.InferenceChunk.finish(getattr(d.InferenceFinishReason, reason))

    def run(self, protocol, request, chunks):
        generator, options, model = self.generator(protocol, request)
        _, reply_kind = self.kinds[protocol]
        processor = self.d.StreamProcessor(generator, options, self.tokenizer)
        reply = reply_kind("resp-1", model, 0, 0, 0)
        events, read = [], 0

        def take(made):
            for event in made:
                data = json.loads(event.to_json())
                name = reply_kind.sse_event_name(event)
                reply.accumulate(event)
                events.append(data if name is None else {"event": name, "data": data})

        for chunk in chunks:
            if processor.finished:
                break
            read += 1
            take(processor.push(self.chunk(chunk)))
        if not processor.finished:
            take(processor.finish())
        return {"events": events, "final": json.loads(reply.to_json()), "chunks_read": read}


def normalise(value):
    if isinstance(value, dict):
        return {k: (0 if k in ("created", "created_at") or (k == "completed_at" and v is not None) else normalise(v))
                for k, v in value.items() if k != "sequence_number"}
    if isinstance(value, list):
        return [normalise(v) for v in value]
    if isinstance(value, str) and re.fullmatch(r"call_\d\d_(ET_)?[A-Za-z0-9]{24}", value):
        return re.sub(r"(call_\d\d_(?:ET_)?).*", r"\1*", value)
    return value


def delta(event):
    """(key that must be equal to join, text, logprobs) or None."""
    if "choices" in event:
        choice = event["choices"][0]
        d = choice["delta"]
        if choice["finish_reason"] is not None or "role" in d:
            return None
        if "tool_calls" in d:
            call = d["tool_calls"][0]
            if "id" in call:
                return None
            return (json.dumps(["args", call["index"]]), call["function"]["arguments"], None)
        kind = "content" if d.get("content") is not None else "reasoning_content"
        logprobs = choice["logprobs"]
        return (kind, d[kind], None if logprobs is None else logprobs[kind])
    data = event["data"]
    d = data.get("delta")
    if isinstance(d, str):
        return (json.dumps({k: v for k, v in data.items() if k not in ("delta", "logprobs")}), d, data.get("logprobs"))
    if isinstance(d, dict):
        for key in ("thinking", "text", "partial_json"):
            if key in d:
                return (json.dumps([data["index"], key]), d[key], None)
    return None


def joined(events):
    out = []
    for event in events:
        d = delta(event)
        if d is None:
            out.append(event)
        elif out and isinstance(out[-1], list) and out[-1][0] == d[0]:
            out[-1][1] += d[1]
            out[-1][2] = (out[-1][2] or []) + (d[2] or [])
        else:
            out.append([d[0], d[1], d[2] or []])
    return out


def strip_spaces(value):
    if isinstance(value, dict):
        return {k: strip_spaces(v) for k, v in value.items()}
    if isinstance(value, list):
        return [strip_spaces(v) for v in value]
    return value.strip(" ") if isinstance(value, str) else value


def comparable(answer, loose):
    out = {"events": joined(normalise(answer["events"])), "final": normalise(answer["final"]), "chunks_read": answer["chunks_read"]}
    return strip_spaces(out) if loose else out


def first_difference(want, got, path):
    """Where two JSON values first differ, in one line."""
    if isinstance(want, dict) and isinstance(got, dict):
        for key in list(want) + [k for k in got if k not in want]:
            if want.get(key) != got.get(key) or (key in want) != (key in got):
                return first_difference(want.get(key, "(absent)"), got.get(key, "(absent)"), f"{path}.{key}")
    if isinstance(want, list) and isinstance(got, list):
        for i, (a, b) in enumerate(zip(want, got)):
            if a != b:
                return first_difference(a, b, f"{path}[{i}]")
        if len(want) != len(got):
            more = want[len(got):] or got[len(want):]
            return f"{path}: want {len(want)} items, got {len(got)}: {json.dumps(more[0], ensure_ascii=False)[:400]}"
    return f"{path}: want {json.dumps(want, ensure_ascii=False)[:500]} got {json.dumps(got, ensure_ascii=False)[:500]}"


def arguments_of(final):
    """The arguments of all calls of a reply, as text; an input that was no JSON is None."""
    if "choices" in final:
        return [c["function"]["arguments"] for c in final["choices"][0]["message"].get("tool_calls", [])]
    if "output" in final:
        return [i["arguments"] for i in final["output"] if isinstance(i.get("arguments"), str)]
    return [json.dumps(b["input"]) if b["input"] else None for b in final.get("content", []) if b["type"] == "tool_use"]


def is_json(text):
    try:
        json.loads(text if text is not None else "")
        return True
    except ValueError:
        return False


def is_repaired(want, got):
    """True where the original's arguments of some call are no JSON and ours are (known bugs 1 and 2)."""
    if "final" not in got:
        return False
    pairs = list(zip(arguments_of(want["final"]), arguments_of(got["final"])))
    return any(not is_json(a) and is_json(b) for a, b in pairs)


def known_bug(parts, setup):
    text = "".join(parts)
    for name, pattern in KNOWN_BUGS:
        if pattern.search(text):
            return name
    if "prefix" in setup and not setup["thinking"]:
        return "prefix continuation without thinking"
    return None


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--tokenizer", required=True)
    arguments.add_argument("--program", default="build/release/bin/deepinfer")
    arguments.add_argument("--count", type=int, default=3000)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--keep", help="write the differing records here")
    arguments.add_argument("--show", type=int, default=5)
    args = arguments.parse_args()
    rng = random.Random(args.seed)
    opener = gzip.open if args.tokenizer.endswith(".gz") else open
    ids = Ids(opener(args.tokenizer, "rt", encoding="utf-8").read())
    oracle = Oracle(ids)
    records, seen = [], collections.Counter()
    for i in range(args.count):
        setup = random_setup(rng)
        parts = random_parts(rng, setup)
        chunks = random_chunks(rng, setup, parts, ids)
        bug = known_bug(parts, setup)
        seen[bug or "compared"] += 1
        if bug:
            continue
        for protocol in ("chat", "responses", "messages"):
            request = request_of(setup, protocol)
            if request is None:
                continue
            record = {"id": f"{i}-{protocol}", "protocol": protocol, "request": request, "chunks": chunks}
            records.append((record, setup, parts, oracle.run(protocol, request, chunks)))
    lines = "".join(json.dumps(r[0], ensure_ascii=False) + "\n" for r in records)
    command = args.program.split() if " " in args.program else [args.program, "decode", "--compat", "recipe", "--tokenizer", args.tokenizer]
    ran = subprocess.run(command, input=lines.encode("utf-8", "surrogatepass"), stdout=subprocess.PIPE, check=True)
    answers = [json.loads(line) for line in ran.stdout.decode().split("\n") if line]
    assert len(answers) == len(records), (len(answers), len(records))
    differing = []
    for (record, setup, parts, expect), answer in zip(records, answers):
        loose = False
        want = comparable(expect, loose)
        got = {"error": answer["error"]} if "error" in answer else comparable(answer, loose)
        if got != want and is_repaired(want, got):
            seen["arguments repaired"] += 1
        elif got != want:
            differing.append((record, setup, parts, want, got))
    for record, setup, parts, want, got in differing[: args.show]:
        print("DIFFERS", record["id"], json.dumps(setup, ensure_ascii=False), json.dumps(parts, ensure_ascii=False))
        print("  chunks", json.dumps(record["chunks"], ensure_ascii=False)[:600])
        print("  " + first_difference(want, got, ""))
    if args.keep:
        with open(args.keep, "w", encoding="utf-8") as out:
            for record, setup, parts, want, got in differing:
                out.write(json.dumps({"record": record, "want": want, "got": got}, ensure_ascii=False) + "\n")
    print(f"{len(records)} runs compared, {len(differing)} differ; streams: {dict(seen)}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
