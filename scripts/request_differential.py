#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random API requests through `deepinfer encode --compat recipe` and through deepseek-recipe 0.2.0, compared field by field.

Usage: request_differential.py --tokenizer tokenizer_v41.json.gz [--seeds requests.jsonl.gz] [--program PATH]
                               [--count N] [--seed S] [--keep FILE]
Needs `pip install deepseek-recipe==0.2.0`. Requests are generated field by field, or are recorded ones (--seeds) with random
changes: fields removed, replaced by values of odd kinds, doubled, moved between requests. Cases that meet a known bug of the
original, or its reading of arrays as objects, are counted apart. Exit status 1 when an answer differs.
"""
import argparse
import collections
import copy
import gzip
import hashlib
import json
import random
import re
import struct
import subprocess
import sys

MODELS = ["DeepSeek-V4.1-Flash"] * 60 + ["DeepSeek-V4-Pro"] * 40 + ["deepseek-chat"]
TEXTS = ["", "Hello", "a", "json please", "line\nbreak", " x ", "\n", "\n\nlead", "你好，世界", "👩‍👩‍👧‍👦 🇫🇷", "<think>", "</think>", "<｜User｜>", "｜DSML｜",
         "<｜image｜>", "<｜ref｜>cat<｜/ref｜><｜box｜>[[1]]<｜/box｜>", "<tool_result>x</tool_result>", "\x00\x1f\x7f\u2028\ufeff", "a\r\n\r\nb", "1234567 1e5",
         "x-anthropic-billing-header: v\nYou are", "x-anthropic-billing-header", "<image_resize_notice>n</image_resize_notice>", "\"quoted\" \\ back"]
NAMES = ["f", "g", "get_weather", "late", "tool_search", "apply_patch", "a-b_c", "n__f", "", "a b", "é", "x" * 128, "x" * 129, "web_search"]
IDS = ["1", "2", "10", "a", "", "call_00_abcdefghijklmnopqrst0000", "call_00_ET_abcdefghijklmnopqrst0000", "call00ETabcdef"]
EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max", None]
URLS = ["http://x/y.png", "HTTPS://例え.jp", "http://" + "x" * 8190, "data:image/png;base64,AA==", "data:image/PNG;x=1;base64,AAA", "data:image/svg+xml;base64,AA==",
        "data:image/gif;base64,A", "data:image/png,base64,%zz", "data:,", "", "ftp://x", " data:image/webp;base64,A A== ", "data:image/jpeg;base64,AB==#f"]
ARGUMENTS = ["{}", '{"a":1}', '{"a":"x","b":[1,2.50,{"c":null}],"a":2}', "", "[1]", "nope", '{"n":1e16,"m":0.00001,"k":-0,"i":12345678901234567890123}', '{"é":"<think>"}', '{"x":1e999}',
             ' {"a" : true } ', '{"a b":"c"}', '{"s":"\\ud83d\\ude00\\u0000"}']
ODD = [None, True, False, 0, 1, -1, 1.5, 300, 4294967296, 10 ** 30, "", "x", [], {}, [None], [1], ["a"], [{}], {"type": "x"}, {"a": 1}]
SCHEMAS = [{"type": "object"}, {"type": "object", "properties": {}}, {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 1}}, "required": ["a", "b"]},
           {"type": "object", "properties": {"a": {"type": "string"}}, "required": []}, {"type": "string"}, {}, True, None, {"type": ["object"]}, {"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}},
           {"type": "object", "properties": {"a": {"type": "array", "items": {"type": ["string", "null"]}}}}, {"type": "object", "additionalProperties": True, "properties": {"q": {"type": "number", "multipleOf": 0.5, "const": 1e-7}}},
           {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"k": {"type": "boolean"}}}], "description": "d"}}, "title": "t"},
           {"type": "object", "minProperties": -1}, {"type": "object", "properties": {"a": {"pattern": "("}}}, {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "items": [{}]}]


class Maker:
    """Random requests, mostly well formed."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, items):
        return self.rng.choice(items)

    def chance(self, p):
        return self.rng.random() < p

    def fields(self, target, **choices):
        for key, (p, make) in choices.items():
            if self.chance(p):
                target[key] = make()
        return target

    def text(self):
        return self.pick(TEXTS)

    def name(self):
        return self.pick(NAMES[:6]) if self.chance(0.93) else self.pick(NAMES)

    def sampling(self, out):
        return self.fields(out, temperature=(0.15, lambda: self.pick([0, 0.2, 1, 1.3, 2, None, 0.7000000001] if self.chance(0.9) else [2.1, -0.1])), top_p=(0.15, lambda: self.pick([0.01, 0.5, 0.95, 1, None] if self.chance(0.9) else [0, 1.01])),
                           stream=(0.2, lambda: self.pick([True, False, None])))

    def url(self):
        return self.pick([URLS[0], URLS[1], URLS[3]]) if self.chance(0.9) else self.pick(URLS)

    def any_schema(self, depth=0):
        """Random keywords with values mostly of the right kind."""
        rng = self.rng
        inner = lambda: self.any_schema(depth + 1) if depth < 3 else {"type": "string"}
        members = lambda: {rng.choice(["a", "b", "é", "$ref", "x y"]): inner() for _ in range(rng.randint(0, 2))}
        values = {"type": lambda: rng.choice(["object", "string", "integer", "number", "array", "boolean", "null", ["string", "null"], ["object"], [], "foo"]), "properties": members, "items": inner,
                  "required": lambda: rng.choice([["a"], ["a", "b"], [], ["a", "a"], ["zz"]]), "additionalProperties": lambda: rng.choice([True, False, {}]), "description": self.text, "title": self.text,
                  "pattern": lambda: rng.choice(["^a+$", "(", "\\p{L}", "[b-a]", "(?=x)y"]), "format": lambda: rng.choice(["email", "uuid", "date", "ipv4"]), "enum": lambda: rng.choice([["a"], [1, None], []]),
                  "minimum": lambda: rng.choice([0, 1.5, -3, "1"]), "multipleOf": lambda: rng.choice([1, 0.1, 0]), "minLength": lambda: rng.choice([0, 3, 1.0, -1]), "uniqueItems": lambda: rng.choice([True, 1]),
                  "anyOf": lambda: [inner() for _ in range(rng.randint(0, 2))], "oneOf": lambda: [inner()], "allOf": lambda: [inner()], "not": inner, "const": lambda: rng.choice(ODD), "default": lambda: rng.choice(ODD),
                  "$ref": lambda: rng.choice(["#", "#/properties/a", "#/$def/x", "#/nope", "http://x/y", "#anchor"]), "$def": members, "$anchor": lambda: rng.choice(["anchor", "1"]), "patternProperties": members,
                  "prefixItems": lambda: [inner()], "contains": inner, "if": inner, "propertyNames": inner, "dependentRequired": lambda: {"a": ["b"]}, "examples": lambda: rng.choice([[1], 1]), "readOnly": lambda: rng.choice([True, 0]),
                  "$schema": lambda: rng.choice(["http://json-schema.org/draft-07/schema#", "http://json-schema.org/draft-04/schema", "https://json-schema.org/draft/2019-09/schema", "x"])}
        out = {"type": rng.choice(["object"] * 3 + ["string"])} if rng.random() < 0.85 or depth == 0 else {}
        for key in rng.sample(sorted(values), rng.randint(0, 4)):
            if key != "$schema" or depth == 0:
                out[key] = values[key]() if rng.random() < 0.97 else copy.deepcopy(rng.choice(ODD))
        return out

    def schema(self):
        if self.chance(0.3):
            return self.any_schema()
        return copy.deepcopy(self.pick(SCHEMAS[:3]) if self.chance(0.8) else self.pick(SCHEMAS))

    # ---- Chat Completions

    def chat_content(self, images=True):
        if self.chance(0.6):
            return self.text()
        blocks = []
        for _ in range(self.rng.randint(0, 3)):
            kind = self.rng.random()
            if kind < 0.7 or not images:
                blocks.append({"type": "text", "text": self.text()})
            elif kind < 0.92:
                blocks.append({"type": "image_url", "image_url": self.fields({"url": self.url()}, detail=(0.3, lambda: self.pick(["low", "high", "original", "auto", None])))})
            else:
                blocks.append(self.fields({"type": "file"}, file_data=(0.7, lambda: self.url()), file_id=(0.2, lambda: "x"), filename=(0.2, lambda: "n")))
        return blocks

    def chat_tool(self):
        function = self.fields({"name": self.name()}, description=(0.5, self.text), parameters=(0.7, self.schema), strict=(0.15, lambda: self.pick([True, False, None])))
        return {"type": "function", "function": function}

    def chat_turn(self):
        kind = self.rng.random()
        if kind < 0.4:
            return [{"role": "user", "content": self.chat_content()}]
        if kind < 0.55:
            return [{"role": "system", "content": self.chat_content()}]
        if kind < 0.62:
            return [{"role": "latest_reminder", "content": self.text()}]
        message = self.fields({"role": "assistant"}, content=(0.8, lambda: self.pick([None, self.chat_content(images=self.chance(0.1))])), reasoning_content=(0.5, lambda: self.pick([None, self.text()])))
        if self.chance(0.5):
            return [message]
        ids = self.rng.sample(IDS, self.rng.randint(1, 3))
        message["tool_calls"] = [{"id": i, "type": "function", "function": {"name": self.name(), "arguments": self.pick(ARGUMENTS)}} for i in ids]
        if self.chance(0.6):
            self.rng.shuffle(ids)
        if self.chance(0.05):
            ids.append(self.pick(IDS))
        if self.chance(0.05):
            ids.pop()
        return [message] + [{"role": "tool", "tool_call_id": i, "content": self.chat_content()} for i in ids]

    def chat(self):
        messages = [m for _ in range(self.rng.randint(0 if self.chance(0.03) else 1, 6)) for m in self.chat_turn()]
        if self.chance(0.15):
            messages.append(self.fields({"role": "assistant", "content": self.pick(["", "Once", "\nx", "json"]), "prefix": True}, reasoning_content=(0.5, self.text)))
        out = {"model": self.pick(MODELS), "messages": messages}
        tools = lambda: [self.chat_tool() for _ in range(self.rng.randint(0, 3))]
        schema = lambda: {"type": "json_schema", "json_schema": self.fields({"name": "s", "schema": self.schema()}, strict=(0.4, lambda: self.pick([True, False])))}
        self.fields(out, tools=(0.4, tools), tool_choice=(0.25, lambda: self.pick(["none", "auto", "required", {"type": "function", "function": {"name": self.pick(NAMES[:4])}}])),
                    reasoning_effort=(0.3, lambda: self.pick(EFFORTS)), thinking=(0.4, lambda: {"type": self.pick(["enabled", "disabled", "disabled", "adaptive"])}),
                    response_format=(0.25, lambda: self.pick([{"type": "text"}, {"type": "json_object"}, {"type": "regex", "regex": "[0-9]+("}, schema(), schema()])),
                    max_tokens=(0.15, lambda: self.pick([0, 1, 100, 393216, 393217, None])), n=(0.05, lambda: self.pick([0, 1, 2])), seed=(0.1, lambda: self.pick([0, 42, 2 ** 63 - 1, 2 ** 63])),
                    stop=(0.1, lambda: self.pick(["x", "", ["a", "b"], [], ["a", ""], ["z"] * 17])), logprobs=(0.1, lambda: self.pick([True, False])), top_logprobs=(0.08, lambda: self.pick([0, 5, 20, 21])),
                    presence_penalty=(0.05, lambda: self.pick([0, -2, 2.5])), frequency_penalty=(0.05, lambda: self.pick([0, -2.1, 2])), stream_options=(0.08, lambda: {"include_usage": True}), user=(0.05, self.text))
        return self.sampling(out)

    # ---- Responses

    def item_content(self, images=True, output_text=0.3):
        if self.chance(0.6):
            return self.text()
        blocks = []
        for _ in range(self.rng.randint(0, 3)):
            kind = self.rng.random()
            if kind < 0.7 or not images:
                blocks.append({"type": "output_text" if self.chance(output_text) else "input_text", "text": self.text()})
            elif kind < 0.93:
                blocks.append(self.fields({"type": "input_image"}, image_url=(0.9, lambda: self.url()), detail=(0.3, lambda: self.pick(["low", "auto", None])), file_id=(0.07, lambda: "x")))
            else:
                blocks.append({"type": "input_file", "file_id": "x"})
        return blocks

    def responses_tool(self):
        function = lambda: self.fields({"type": "function", "name": self.name()}, description=(0.5, self.text), parameters=(0.6, self.schema), strict=(0.1, lambda: self.pick([True, False, None])))
        kind = self.rng.random()
        if kind < 0.5:
            return function()
        if kind < 0.75:
            inner = [function() if self.chance(0.95) else {"type": "custom", "name": "c"} for _ in range(self.rng.randint(0, 3))]
            return self.fields({"type": "namespace", "name": self.pick(["n", "n_", "_n", "ns", "n", "a b"]), "tools": inner}, description=(0.5, self.text))
        if kind < 0.83:
            return {"type": "custom", "name": self.pick(["apply_patch"] * 5 + ["x"])}
        if kind < 0.93:
            return self.fields({"type": "tool_search"}, execution=(0.9, lambda: self.pick(["client", "client", "server", None])), description=(0.5, self.text), parameters=(0.5, lambda: self.pick(SCHEMAS[:2])))
        return {"type": self.pick(["web_search", "web_search_2025_08_26", "web_search_preview", "zzz"])}

    def responses_turn(self):
        kind = self.rng.random()
        if kind < 0.3:
            return [self.fields({"role": self.pick(["user", "user", "system", "developer"]), "content": self.item_content()}, type=(0.3, lambda: "message"))]
        if kind < 0.45:
            return [{"role": "assistant", "content": self.item_content(images=self.chance(0.1))}]
        if kind < 0.58:
            return [self.fields({"type": "reasoning"}, content=(0.9, lambda: [{"text": self.text()} for _ in range(self.rng.randint(0, 2))]), summary=(0.3, list))]
        if kind < 0.63:
            return [{"type": self.pick(["web_search_call", "zzz", "item_reference"])}]
        if kind < 0.67:
            return [{"type": "function_call_output", "output": self.item_content(output_text=0.005)}]
        calls, outputs = [], []
        for i in self.rng.sample([str(k) for k in range(1, 60)] if self.chance(0.9) else IDS[:4], self.rng.randint(1, 3)):
            form = self.rng.random()
            if form < 0.65:
                calls.append(self.fields({"type": "function_call", "call_id": i, "name": self.name(), "arguments": self.pick(ARGUMENTS)}, namespace=(0.3, lambda: self.pick(["n", "n_", "ns", "q", None]))))
            elif form < 0.8:
                calls.append({"type": "custom_tool_call", "call_id": i, "name": "apply_patch", "input": self.text()})
            else:
                calls.append({"type": "tool_search_call", "call_id": i, "execution": "client", "arguments": self.pick([{}, {"q": "x"}, {"a": [1, 2.50]}])})
            if form < 0.8 or self.chance(0.2):
                outputs.append(self.fields({"type": self.pick(["function_call_output", "function_call_output", "custom_tool_call_output"]), "call_id": i, "output": self.item_content(output_text=0.005)}))
            else:
                outputs.append({"type": "tool_search_output", "call_id": i, "tools": [self.responses_tool() for _ in range(self.rng.randint(0, 2))]})
        if self.chance(0.5):
            self.rng.shuffle(outputs)
        for at in range(len(outputs), 0, -1):
            if self.chance(0.12):
                outputs.insert(at, {"role": "developer", "content": [{"type": "input_text", "text": "<image_resize_notice>n</image_resize_notice>"}]})
        if self.chance(0.06):
            outputs.append(copy.deepcopy(self.pick(outputs)))
        if self.chance(0.06):
            outputs.pop(self.rng.randrange(len(outputs)))
        if self.chance(0.08):
            calls.append({"role": "user", "content": "between"} if self.chance(0.5) else {"type": "zzz"})
        if self.chance(0.3):  # interleaved, each output after its call
            order = sorted(range(len(calls) + len(outputs)), key=lambda k: self.rng.random() + (0 if k < len(calls) else 0.7))
            return [(calls + outputs)[k] for k in order]
        return calls + outputs

    def responses(self):
        out = {"model": self.pick(MODELS)}
        items = lambda: [x for _ in range(self.rng.randint(0 if self.chance(0.03) else 1, 5)) for x in self.responses_turn()]
        schema = lambda: self.fields({"type": "json_schema", "name": "s", "schema": self.schema()}, strict=(0.4, lambda: self.pick([True, False])))
        self.fields(out, input=(0.97, lambda: self.text() if self.chance(0.1) else items()), instructions=(0.3, self.text), tools=(0.5, lambda: [self.responses_tool() for _ in range(self.rng.randint(0, 3))]),
                    tool_choice=(0.2, lambda: self.pick(["none", "auto", "required", {"type": "function", "name": self.pick(NAMES[:4] + ["n::f"])}, {"type": "custom", "name": "apply_patch"}, {"type": "web_search"}])),
                    reasoning=(0.6, lambda: self.fields({}, effort=(0.9, lambda: self.pick(EFFORTS + ["none"] * 5)), summary=(0.1, lambda: "auto"))), max_output_tokens=(0.15, lambda: self.pick([0, 1, 100, 393217])),
                    top_logprobs=(0.08, lambda: self.pick([0, 5, 21])), text=(0.2, lambda: self.fields({}, format=(0.9, lambda: self.pick([{"type": "text"}, {"type": "json_object"}, schema()])), verbosity=(0.2, lambda: "low"))),
                    user=(0.05, self.text), previous_response_id=(0.05, lambda: "resp_1"), store=(0.05, lambda: True))
        return self.sampling(out)

    # ---- Messages

    def image(self):
        source = self.pick([{"type": "url", "url": self.url()}, {"type": "base64", "media_type": self.pick(["image/png", "image/jpg"]), "data": self.pick(["AA==", "AA", "AAA=", "AAAA=", "", "A", "-_8=", "AB=="])}, {"type": "file", "file_id": "x"}])
        return {"type": "image", "source": source}

    def plain_block(self):
        kind = self.rng.random()
        if kind < 0.75:
            return self.fields({"type": "text", "text": self.text()}, cache_control=(0.1, lambda: {"type": "ephemeral"}))
        if kind < 0.9:
            return self.image()
        return {"type": "document", "source": self.fields({}, media_type=(0.5, lambda: "application/pdf"))}

    def result_content(self):
        if self.chance(0.5):
            return self.text()
        return [{"type": "tool_reference", "tool_name": self.pick(["late", "f", "zz"] if self.chance(0.1) else ["late", "f"])} if self.chance(0.3) else self.plain_block() for _ in range(self.rng.randint(0, 3))]

    def messages_turn(self):
        kind = self.rng.random()
        if kind < 0.4:
            return [{"role": "user", "content": self.text() if self.chance(0.4) else [self.plain_block() for _ in range(self.rng.randint(0 if self.chance(0.1) else 1, 3))]}]
        if kind < 0.52:
            block = lambda: {"type": "tool_addition", "tool": {"type": "tool_reference", "name": self.pick(["late", "f", "late", "zz"])}} if self.chance(0.4) else self.plain_block()
            return [{"role": "system", "content": self.text() if self.chance(0.4) else [block() for _ in range(self.rng.randint(0, 3))]}]
        if kind < 0.6:
            return [{"role": "assistant", "content": self.text()}]
        blocks = []
        for _ in range(self.rng.randint(0, 2)):
            blocks.append({"type": "thinking", "thinking": self.text(), "signature": "s"} if self.chance(0.5) else self.plain_block() if self.chance(0.2) else {"type": "text", "text": self.text()})
        if self.chance(0.07):
            blocks.append(self.pick([{"type": "server_tool_use", "id": "w", "name": "web_search", "input": {}}, {"type": "web_search_tool_result", "tool_use_id": "w", "content": []}, {"type": "redacted_thinking", "data": "x"}]))
        ids = self.rng.sample(IDS[:5], self.rng.randint(0, 3)) if self.chance(0.7) else []
        for i in ids:
            blocks.append({"type": "tool_use", "id": i, "name": self.name(), "input": self.pick([{}, {"a": 1}, {"b": [1.50, None]}, "x", None, {"é": "y"}])})
        if self.chance(0.05):
            blocks.append(self.pick([{"type": "text", "text": "after"}, {"type": "thinking", "thinking": "t"}, self.image(), {"type": "tool_result", "tool_use_id": "1"}]))
        out = [{"role": "assistant", "content": blocks}]
        if not ids:
            return out
        if self.chance(0.5):
            self.rng.shuffle(ids)
        if self.chance(0.05):
            ids.pop()
        if self.chance(0.05):
            ids.append(self.pick(IDS))
        answer = [self.fields({"type": "tool_result", "tool_use_id": i}, content=(0.9, self.result_content), is_error=(0.1, lambda: True)) for i in ids]
        answer += [self.plain_block() for _ in range(self.pick([0, 0, 1, 2]))]
        if self.chance(0.05):
            self.rng.shuffle(answer)
        return out + [{"role": "user", "content": answer}]

    def messages_tool(self):
        if self.chance(0.05):
            return {"type": self.pick(["web_search_20250305", "bash_20250124"]), "name": self.pick(["web_search", "bash"])}
        return self.fields({"name": self.name()}, description=(0.5, self.text), input_schema=(0.97, self.schema), defer_loading=(0.3, lambda: self.pick([True, True, False, None])))

    def messages(self):
        out = {"model": self.pick(MODELS), "messages": [m for _ in range(self.rng.randint(0 if self.chance(0.03) else 1, 5)) for m in self.messages_turn()]}
        tools = lambda: ([{"name": "f", "input_schema": {"type": "object"}}, {"name": "late", "input_schema": {"type": "object"}, "defer_loading": True}] if self.chance(0.7) else []) + [self.messages_tool() for _ in range(self.rng.randint(0, 2))]
        self.fields(out, max_tokens=(0.8, lambda: self.pick([0, 1, 100, 393216, 4000000, None])), system=(0.4, lambda: self.text() if self.chance(0.5) else [{"type": "text", "text": self.text()} for _ in range(self.rng.randint(0, 2))]),
                    tools=(0.6, tools), tool_choice=(0.25, lambda: self.pick([{"type": "auto"}, {"type": "any"}, {"type": "none"}, {"type": "tool", "name": self.pick(["f", "late", "web_search", "zz"])}])),
                    thinking=(0.5, lambda: {"type": self.pick(["enabled", "disabled", "disabled", "adaptive"])}), output_config=(0.2, lambda: {"effort": self.pick(EFFORTS)}),
                    stop_sequences=(0.1, lambda: self.pick([["a"], [], ["a", ""], ["z"] * 17])), metadata=(0.1, lambda: {"user_id": "u"}))
        return self.sampling(out)


def places(value, found):
    """Every container of a JSON value, with its keys."""
    if isinstance(value, dict):
        for key in value:
            found.append((value, key))
            places(value[key], found)
    elif isinstance(value, list):
        for index in range(len(value)):
            found.append((value, index))
            places(value[index], found)
    return found


def mutate(rng, request, donors):
    request = copy.deepcopy(request)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        spots = places(request, [])
        if not spots:
            return request
        container, key = rng.choice(spots)
        kind = rng.random()
        if kind < 0.25:
            del container[key]
        elif kind < 0.55:
            container[key] = copy.deepcopy(rng.choice(ODD))
        elif kind < 0.65:
            container[key] = rng.choice(TEXTS)
        elif kind < 0.8 and isinstance(container, list):
            container.insert(rng.randint(0, len(container)), copy.deepcopy(container[key]))
        elif kind < 0.9:
            donor, donor_key = rng.choice(places(rng.choice(donors), []))
            container[key] = copy.deepcopy(donor[donor_key])
        else:
            spot, spot_key = rng.choice(spots)
            try:
                value = copy.deepcopy(spot[spot_key])
            except (KeyError, IndexError):
                continue
            container[key] = value
    return request


# ---- the original

class Original:
    def __init__(self, tokenizer_text):
        import deepseek_recipe as recipe
        self.recipe = recipe
        tokenizer = recipe.Tokenizer.from_str(tokenizer_text)
        self.encodings = {recipe.ModelVersion.DeepseekV41Flash: ("v41", recipe.DeepseekV41Encoding().with_tokenizer(tokenizer)),
                          recipe.ModelVersion.DeepseekV4Pro: ("v4", recipe.DeepseekV4Encoding().with_tokenizer(tokenizer))}
        self.classes = {"chat": recipe.ChatCompletionRequest, "responses": recipe.ResponsesRequest, "messages": recipe.MessagesRequest}

    def options(self, given):
        recipe = self.recipe
        options = recipe.ConversionOptions()
        for key, value in given.items():
            if key == "default_thinking_mode":
                options = options.with_default_thinking_mode(value)
            elif key == "reasoning_content_behavior":
                options = options.with_reasoning_content_behavior(getattr(recipe.ReasoningContentBehavior, value))
            else:
                options = getattr(options, "with_" + key)(getattr(recipe.WebSearchBehavior, value))
        return options

    def encode(self, protocol, body, options):
        try:
            request = self.classes[protocol](body)
        except ValueError as error:
            return {"error": {"stage": "parse", "status": 400, "message": str(error)}}
        try:
            request = request.convert(self.options(options))
        except self.recipe.ConversionError as error:
            return {"error": dict(json.loads(error.body)["error"], stage="convert", status=error.status_code)}
        version, encoding = self.encodings[request.model_version]
        talk, inference, parsing = request.conversation, request.inference_options, request.parsing_options
        rendered = encoding.render_conversation(talk)
        prompt = rendered.prompt
        offsets = [0]
        for character in prompt:
            offsets.append(offsets[-1] + len(character.encode()))
        ids = encoding.encode(talk)
        constraint = inference.output_constraint
        stage = parsing.thinking_initial_stage
        try:
            resolved = {"max_tokens": request.resolve_max_tokens(len(ids), 1048576)}
        except self.recipe.ConversionError as error:
            resolved = {"error": json.loads(error.body)["error"]["message"]}
        return {"version": version, "prompt": prompt, "special": [[offsets[a], offsets[b]] for a, b in rendered.special_ranges], "ids": ids, "thinking": talk.thinking_mode,
                "effort": talk.reasoning_effort, "tool_choice": talk.tool_choice, "tools": [tool.name for tool in talk.tools], "response_format": talk.response_format, "stream": request.stream,
                "inference": {"max_tokens": inference.max_tokens, "temperature": inference.temperature, "top_p": inference.top_p, "logprobs": inference.logprobs, "top_logprobs": inference.top_logprobs,
                              "seed": inference.seed, "constraint": constraint and {"kind": constraint.kind, "schema": constraint.schema}},
                "resolved": resolved,
                "parsing": {"parse_tool_calls": parsing.parse_tool_calls, "starts_in_tool_calls": parsing.starts_in_tool_calls, "parse_json_output": parsing.parse_json_output,
                            "thinking_initial_stage": str(stage).split(".")[-1] if stage is not None else None, "stop_sequences": parsing.stop_sequences},
                "images": [self.image(source) for source in rendered.image_sources]}

    @staticmethod
    def image(source):
        out = {"kind": source.kind, "detail": source.detail, "path": source.path}
        if source.kind == "url":
            out["url"] = source.url
        else:
            out["data_url_sha256"] = hashlib.sha256(source.data_url.encode()).hexdigest()
        return out


# ---- comparison

LIBRARY_WORDS = ("Invalid schema for function '", "Invalid tool parameters schema : ", "Invalid json schema: ")
FIXED_WORDS = re.compile(r"^Invalid schema for function '[^']*': schema must be a JSON Schema of 'type: \"object\"'")


def rounded(value):
    return None if value is None else struct.unpack("f", struct.pack("f", value))[0]


def is_known_bug(request, expected, got):
    text = json.dumps(request)
    if '"$defs"' in text or '"definitions"' in text:
        return "$defs of strict schemas"
    if expected.get("error", {}).get("message", "").endswith("server tools are not supported") and re.search(r'"type": "custom"', text):
        return "client tool of type custom"
    if isinstance(request, dict) and isinstance(request.get("messages"), list) and "prompt" in expected and expected["prompt"].count("<｜User｜>") == 0 and '"prefix": true' in text:
        return "prefix as the only message"
    if expected.get("error", {}).get("stage") != "parse" and got.get("error", {}).get("stage") == "parse" and re.search(r"got (a list|an object)", got["error"]["message"]):
        return "array read as an object, or map as an enum"
    if "prompt" in expected and re.search(r'is not a "regex" \(at .*/(if|then|else)/', got.get("error", {}).get("message", "")):
        return "pattern in a branch that is never compiled"
    if got.get("error", {}).get("stage") == "parse" and re.search(r"type: expected [^,]*, got integer", got["error"]["message"]):
        return "integer read as the index of a type"
    return None


def without_choice(message):
    """The original names any open call, in the order of a hash table."""
    return re.sub(r"^(No tool output found for tool call ).*", r"\1", message, flags=re.S)


def differences(expected, got):
    if "error" in expected or "error" in got:
        a, b = expected.get("error"), got.get("error")
        if a is None or b is None:
            return ["refused by one only: original %s, ours %s" % (a and a["message"], b and b["message"])]
        if a["status"] != b["status"] or (a["stage"] == "convert") != (b["stage"] == "convert"):
            return ["refusal: original %s, ours %s" % (a, b)]
        if a["stage"] == "parse" or (a["message"].startswith(LIBRARY_WORDS) and not FIXED_WORDS.match(a["message"]) and b["message"].startswith(LIBRARY_WORDS)):
            return []
        return ["message: original %r, ours %r" % (a["message"], b["message"])] if without_choice(a["message"]) != without_choice(b["message"]) else []
    out = []
    for key, value in expected.items():
        if key == "inference":
            for name, setting in value.items():
                other = got[key][name]
                same = rounded(setting) is None and other is None or abs(rounded(setting) - other) <= 1e-6 * abs(other) if name in ("temperature", "top_p") else setting == other
                if not same:
                    out.append("inference.%s: original %r, ours %r" % (name, setting, other))
        elif value != got.get(key):
            out.append("%s: original %r, ours %r" % (key, value, got.get(key)))
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--seeds")
    parser.add_argument("--program", default="build/release/bin/deepinfer")
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="write the differing cases here, JSON lines")
    parser.add_argument("--show", type=int, default=10)
    arguments = parser.parse_args()
    opener = gzip.open if arguments.tokenizer.endswith(".gz") else open
    original = Original(opener(arguments.tokenizer, "rt", encoding="utf8").read())
    rng = random.Random(arguments.seed)
    maker = Maker(rng)
    recorded = collections.defaultdict(list)
    if arguments.seeds:
        for line in gzip.open(arguments.seeds, "rt", encoding="utf8", newline="\n").read().split("\n"):
            if line and "request" in json.loads(line):
                record = json.loads(line)
                recorded[record["protocol"]].append(record["request"])
    cases = []
    for index in range(arguments.count):
        protocol = rng.choice(["chat", "responses", "messages"])
        made = getattr(maker, protocol)()
        if recorded and rng.random() < 0.25:
            made = copy.deepcopy(rng.choice(recorded[protocol]))
        if rng.random() < 0.35:
            made = mutate(rng, made, recorded[protocol] or [made])
        options = {}
        if rng.random() < 0.15:
            options = rng.choice([{"default_thinking_mode": False}, {"reasoning_content_behavior": "Reject"}, {"messages_web_search": "Drop"}, {"responses_web_search": "Reject"}])
        cases.append({"id": index, "protocol": protocol, "options": options, "request_text": json.dumps(made, ensure_ascii=rng.random() < 0.5)})
    command = arguments.program.split() + ([] if "enc" == arguments.program.split("/")[-1] else ["encode", "--compat", "recipe", "--tokenizer", arguments.tokenizer])
    answers = subprocess.run(command, input="".join(json.dumps(case) + "\n" for case in cases).encode(), stdout=subprocess.PIPE, check=True).stdout.decode().split("\n")
    counts, shown, kept = collections.Counter(), 0, open(arguments.keep, "w", encoding="utf8") if arguments.keep else None
    for case, answer in zip(cases, answers):
        got = json.loads(answer)["result"]
        body = case["request_text"]
        expected = original.encode(case["protocol"], body, case["options"])
        counts["refused" if "error" in expected else "accepted"] += 1
        found = differences(expected, got)
        if not found:
            continue
        bug = is_known_bug(json.loads(body), expected, got)
        counts[bug or "DIFFERENT"] += 1
        if bug:
            continue
        if kept:
            kept.write(json.dumps(dict(case, expected=expected, got=got), ensure_ascii=False) + "\n")
        if shown < arguments.show:
            shown += 1
            print(case["protocol"], case["options"] or "", body[:1500])
            for difference in found[:3]:
                print("   ", difference[:700])
    print(", ".join("%d %s" % (count, name) for name, count in sorted(counts.items())))
    return 1 if counts["DIFFERENT"] else 0


if __name__ == "__main__":
    sys.exit(main())
