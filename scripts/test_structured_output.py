#!/usr/bin/env python3
"""Structured output end to end: a started `deepinfer serve` with the mini model, requests at temperature 1, every answer
judged by jsonschema, re or hand-written checks.

Usage: scripts/test_structured_output.py PROGRAM [--runs 500] [--threads 4] [--model mini]
Exit status 1 when an answer is invalid; each is printed with its request.
"""
import argparse
import collections
import concurrent.futures
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request

try:
    import jsonschema
except ImportError:
    print("skipped: the Python package jsonschema is not installed")
    sys.exit(77)

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 4, "uniqueItems": True},
        "mail": {"anyOf": [{"type": "null"}, {"type": "string", "format": "email", "maxLength": 30}]},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TREE = {
    "$defs": {"node": {"type": "object", "properties": {"v": {"type": "number"}, "next": {"anyOf": [
        {"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"], "additionalProperties": False}},
    "$ref": "#/$defs/node",
}
CITY = {"type": "object", "properties": {
    "city": {"type": "string", "pattern": "^[A-Z][a-z]{1,10}$"},
    "days": {"type": "integer", "minimum": 1, "maximum": 9},
    "units": {"type": "array", "items": {"type": "string", "enum": ["C", "F"]}}},
    "required": ["city", "days", "units"], "additionalProperties": False}
NOTE = {"type": "object", "properties": {"text": {"type": "string"}, "level": {"type": "number"}},
        "required": ["text", "level"], "additionalProperties": False}
TOOLS = {"weather": CITY, "note": NOTE, "now": {"type": "object", "properties": {}, "required": [],
                                                "additionalProperties": False}}
# Strict form keeps fewer keywords than JSON Schema has; these stay.
DATE = r"(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])( [a-z]{2,8}){0,3}"
SUMS = 'root ::= sum\nsum ::= term (" + " term)*\nterm ::= [1-9] [0-9]{0,2} | "(" sum ")"\n'
PROMPTS = ["Tell me about a person, in json.", "Weather in Oslo and Rome, please: json.", "Write json.", "What is new? json"]


class Failure(Exception):
    pass


def expect(holds, what):
    if not holds:
        raise Failure(what)


def check_json(schema):
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())

    def check(text):
        value = json.loads(text)
        errors = [error.message for error in validator.iter_errors(value)]
        expect(not errors, "; ".join(errors))
    return check


def check_sum(text):
    rest = text
    while True:  # innermost sums become numbers until one number is left
        shorter = re.sub(r"\(([1-9][0-9]{0,2}|#)( \+ ([1-9][0-9]{0,2}|#))*\)", "#", rest)
        if shorter == rest:
            break
        rest = shorter
    expect(re.fullmatch(r"([1-9][0-9]{0,2}|#)( \+ ([1-9][0-9]{0,2}|#))*", rest), "no sum")


def check_calls(calls, most=None):
    expect(calls, "no call")
    expect(most is None or len(calls) <= most, f"{len(calls)} calls")
    for name, arguments in calls:
        expect(name in TOOLS, f"unknown tool {name}")
        check_json(TOOLS[name])(arguments)


def chat_tools(strict):
    return [{"type": "function", "function": {"name": name, "description": "", "parameters": schema, "strict": strict}}
            for name, schema in TOOLS.items()]


# Each case: name, protocol, fields of the body, check of (text, calls, finish).
def text_only(check):
    return lambda text, calls, finish: check(text)


def any_calls(text, calls, finish):
    for name, arguments in calls:
        expect(name in TOOLS, f"unknown tool {name}")
        expect(isinstance(json.loads(arguments), dict), "arguments are no object")


CASES = [
    ("json_object", "chat", {"response_format": {"type": "json_object"}}, text_only(check_json({"type": "object"}))),
    ("json_schema", "chat", {"response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}},
     text_only(check_json(PERSON))),
    ("recursive schema", "chat", {"structured_outputs": {"json": TREE}}, text_only(check_json(TREE))),
    ("thinking, then json_schema", "chat", {"thinking": {"type": "enabled"}, "response_format": {
        "type": "json_schema", "json_schema": {"name": "p", "schema": PERSON}}}, text_only(check_json(PERSON))),
    ("thinking, then json_object", "chat", {"thinking": {"type": "enabled"}, "response_format": {"type": "json_object"}},
     text_only(check_json({"type": "object"}))),
    ("regex", "chat", {"response_format": {"type": "regex", "regex": DATE}},
     text_only(lambda text: expect(re.fullmatch(DATE, text), "no match"))),
    ("guided_regex", "chat", {"guided_regex": "(yes|no|maybe)[.!]{1,3}"},
     text_only(lambda text: expect(re.fullmatch("(yes|no|maybe)[.!]{1,3}", text), "no match"))),
    ("guided_choice", "chat", {"guided_choice": ["Oslo", "New York", "naïve", "日本"]},
     text_only(lambda text: expect(text in ["Oslo", "New York", "naïve", "日本"], "no choice"))),
    ("guided_grammar", "chat", {"guided_grammar": SUMS}, text_only(check_sum)),
    ("plain completion, guided_json", "completions", {"guided_json": CITY}, text_only(check_json(CITY))),
    ("strict tools, required", "chat", {"tools": chat_tools(True), "tool_choice": "required"},
     lambda text, calls, finish: check_calls(calls)),
    ("strict tools, one call", "chat", {"tools": chat_tools(True), "tool_choice": "required",
                                        "parallel_tool_calls": False},
     lambda text, calls, finish: check_calls(calls, 1)),
    ("strict tools, named", "chat", {"tools": chat_tools(True), "tool_choice": {"type": "function", "function": {
        "name": "weather"}}},
     lambda text, calls, finish: check_calls([c for c in calls if expect(c[0] == "weather", c[0]) is None])),
    ("strict tools, thinking, required", "chat", {"tools": chat_tools(True), "tool_choice": "required",
                                                  "thinking": {"type": "enabled"}},
     lambda text, calls, finish: check_calls(calls)),
    ("strict tools, auto", "chat", {"tools": chat_tools(True)},
     lambda text, calls, finish: calls and check_calls(calls)),
    ("tools, auto", "chat", {"tools": chat_tools(False)}, any_calls),
    ("tools, required", "chat", {"tools": chat_tools(False), "tool_choice": "required"},
     lambda text, calls, finish: (expect(calls, "no call"), any_calls(text, calls, finish))),
    ("Responses, text.format", "responses", {"text": {"format": {"type": "json_schema", "name": "c", "schema": CITY}}},
     text_only(check_json(CITY))),
    ("Messages, tool any", "messages", {"tools": [{"name": n, "input_schema": s, "strict": True} for n, s in TOOLS.items()],
                                        "tool_choice": {"type": "any"}}, lambda text, calls, finish: check_calls(calls)),
    ("Messages, output_config", "messages", {"output_config": {"format": {"type": "json_schema", "schema": CITY}}},
     text_only(check_json(CITY))),
]


def body_of(protocol, fields, model, prompt, seed):
    limit = 1500
    if protocol == "completions":
        body = {"prompt": prompt, "max_tokens": limit, "seed": seed, "temperature": 1}
    elif protocol == "responses":
        body = {"input": prompt, "max_output_tokens": limit, "reasoning": {"effort": "none"}}
    else:
        body = {"messages": [{"role": "user", "content": prompt}], "max_tokens": limit,
                "thinking": {"type": "disabled"}}
        if protocol == "chat":
            body.update(seed=seed, temperature=1)
    # Free strings of a small model may go on for long: an answer must end before the limit cuts it.
    if protocol in ("chat", "completions"):
        body["structured_outputs"] = {"close_at_max_tokens": True}
    outputs = {**body.get("structured_outputs", {}), **fields.get("structured_outputs", {})}
    body.update(model=model, **fields)
    if outputs:
        body["structured_outputs"] = outputs
    return body


def answer_of(protocol, reply):
    """Text, [(name, arguments)], finish."""
    if protocol == "completions":
        return reply["choices"][0]["text"], [], reply["choices"][0]["finish_reason"]
    if protocol == "chat":
        message = reply["choices"][0]["message"]
        calls = [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or []]
        return message.get("content") or "", calls, reply["choices"][0]["finish_reason"]
    if protocol == "responses":
        text = "".join(part["text"] for item in reply["output"] if item["type"] == "message" for part in item["content"])
        calls = [(i["name"], i["arguments"]) for i in reply["output"] if i["type"] == "function_call"]
        return text, calls, "length" if reply["status"] == "incomplete" else "stop"
    text = "".join(block["text"] for block in reply["content"] if block["type"] == "text")
    calls = [(b["name"], json.dumps(b["input"])) for b in reply["content"] if b["type"] == "tool_use"]
    return text, calls, "length" if reply["stop_reason"] == "max_tokens" else "stop"


PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "responses": "/v1/responses",
         "messages": "/v1/messages"}


def run_one(base, model, number):
    name, protocol, fields, check = CASES[number % len(CASES)]
    body = body_of(protocol, fields, model, PROMPTS[number % len(PROMPTS)], number)
    request = urllib.request.Request(base + PATHS[protocol], json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=600) as response:
            text, calls, finish = answer_of(protocol, json.load(response))
    except urllib.error.HTTPError as error:
        return name, f"HTTP {error.code}: {error.read().decode()}", body
    if finish == "length":
        return name, "cut", body
    try:
        check(text, calls, finish)
    except (Failure, ValueError) as error:
        return name, f"{error} in text {text!r}, calls {calls!r}", body
    return name, None, body


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--model", default="mini")
    options = parser.parse_args()
    server = subprocess.Popen([options.program, "serve", "--port", "0", "--model", options.model],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        base = server.stdout.readline().split()[-1]
        with urllib.request.urlopen(base + "/v1/models") as response:
            model = json.load(response)["data"][0]["id"]
        totals, bad, cut = collections.Counter(), 0, 0
        with concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
            for name, wrong, body in pool.map(lambda i: run_one(base, model, i), range(options.runs)):
                totals[name] += 1
                if wrong == "cut":
                    cut += 1
                    print(f"cut by max_tokens: {name}")
                elif wrong:
                    bad += 1
                    print(f"INVALID {name}: {wrong}\n  request {json.dumps(body, ensure_ascii=False)[:600]}")
        print(f"{options.runs} answers in {len(totals)} kinds: {options.runs - bad - cut} valid, {cut} cut, {bad} invalid")
        return 1 if bad else 0
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    sys.exit(main())
