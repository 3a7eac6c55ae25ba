#!/usr/bin/env python3
"""Grammars against validators that know nothing of them.

walks         random walks over allowed tokens (`deepinfer grammar sample`) for schemas and regular expressions, from
              files and generated; every text must satisfy jsonschema or re.
differential  generated schemas with generated instances: `deepinfer grammar check` must accept what jsonschema accepts
              and nothing else, or refuse the schema.

Usage: scripts/test_grammar_walks.py PROGRAM [--tokens 1000000] [--schemas 2000] [--seed 0] [--files FILE.jsonl.gz ...]
Exit status 1 when a text or verdict is wrong; each is printed.
"""
import argparse
import collections
import gzip
import json
import random
import re
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("skipped: the Python package jsonschema is not installed")
    sys.exit(77)

WORDS = ["a", "b", "ab", "red", "x-1", "name", "", "é", "日本", "a b", "Zz9"]
PATTERNS = ["^[a-z]+$", "^x-", "[0-9]", "^a|b$", "^[A-Z][a-z]{0,3}$", "^(ab|cd)*$", "^.{2,5}$", "z", "^[^0-9]*$"]
NAMES = ["a", "b", "name", "x-1", "x-2", "z"]
REGEXES = [r"[a-f0-9]{8}-[a-f0-9]{4}", r"(yes|no)( [a-z]{1,9}){0,4}", r"-?(0|[1-9][0-9]*)(\.[0-9]+)?", r"[^\n\"]{3,40}",
           r"(a|b)*abb", r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}", r"[A-Z]\w{0,12}(, [A-Z]\w{0,12})*", r"(é|日本|x){1,5}",
           r"((a{2}|b{3}){1,3}c)+", r"[\u0400-\u04FF]{2,10}", r"\s*\S+\s*", r"[a-z]+@[a-z]+\.(com|org)"]


def generated_schema(rng, depth=3):
    roll = rng.random()
    if depth > 0 and roll < 0.22:
        kind = rng.choice(["allOf", "anyOf", "oneOf", "not", "if"])
        if kind == "not":
            return {"not": generated_schema(rng, depth - 1), **simple_schema(rng, depth - 1)}
        if kind == "if":
            return {"if": generated_schema(rng, depth - 1), "then": generated_schema(rng, depth - 1),
                    "else": generated_schema(rng, depth - 1)}
        return {kind: [generated_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))],
                **(simple_schema(rng, depth - 1) if rng.random() < 0.4 else {})}
    if roll < 0.26:
        return rng.choice([True, {}, {"$ref": "#/$defs/d"}])
    return simple_schema(rng, depth)


def simple_schema(rng, depth):
    kind = rng.choice(["integer", "number", "string", "boolean", "null", "object", "array", "enum", "types", "object"])
    schema = {}
    if kind == "enum":
        values = [generated_value(rng, 1) for _ in range(rng.randint(1, 4))]
        return {"const": values[0]} if rng.random() < 0.3 else {"enum": values}
    if kind == "types":
        schema["type"] = rng.sample(["integer", "number", "string", "boolean", "null", "object", "array"], 2)
    elif rng.random() < 0.85:
        schema["type"] = kind
    if kind in ("integer", "number") and rng.random() < 0.7:
        low = rng.randint(-20, 20)
        for key, value in [("minimum", low), ("maximum", low + rng.randint(0, 30)), ("exclusiveMinimum", low),
                           ("exclusiveMaximum", low + 0.5), ("multipleOf", rng.choice([1, 2, 3, 5, 0.5, 0.25, 10]))]:
            if rng.random() < 0.3:
                schema[key] = value
    if kind == "string":
        for key, value in [("minLength", rng.randint(0, 4)), ("maxLength", rng.randint(2, 8)),
                           ("pattern", rng.choice(PATTERNS))]:
            if rng.random() < 0.4:
                schema[key] = value
    if kind == "object" and depth > 0:
        if rng.random() < 0.8:
            schema["properties"] = {name: generated_schema(rng, depth - 1) for name in rng.sample(NAMES, rng.randint(0, 3))}
        if rng.random() < 0.5:
            schema["required"] = rng.sample(NAMES, rng.randint(0, 2))
        if rng.random() < 0.4:
            schema["additionalProperties"] = rng.choice([False, generated_schema(rng, depth - 1)])
        if rng.random() < 0.25:
            schema["patternProperties"] = {rng.choice(PATTERNS): generated_schema(rng, depth - 1)}
        if rng.random() < 0.2:
            schema["propertyNames"] = rng.choice([{"pattern": rng.choice(PATTERNS)}, {"maxLength": 3}, {"enum": NAMES[:3]}])
        if rng.random() < 0.2:
            schema["minProperties"] = rng.randint(0, 2)
        if rng.random() < 0.2:
            schema["maxProperties"] = rng.randint(1, 3)
        if rng.random() < 0.15:
            schema["dependentRequired"] = {rng.choice(NAMES): [rng.choice(NAMES)]}
        if rng.random() < 0.1:
            schema["dependentSchemas"] = {rng.choice(NAMES): generated_schema(rng, depth - 1)}
        if rng.random() < 0.1:
            schema["unevaluatedProperties"] = False
    if kind == "array" and depth > 0:
        if rng.random() < 0.7:
            schema["items"] = generated_schema(rng, depth - 1)
        if rng.random() < 0.3:
            schema["prefixItems"] = [generated_schema(rng, depth - 1) for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.2:
            schema["contains"] = generated_schema(rng, depth - 1)
            if rng.random() < 0.5:
                schema[rng.choice(["minContains", "maxContains"])] = rng.randint(0, 2)
        if rng.random() < 0.3:
            schema["minItems"] = rng.randint(0, 2)
        if rng.random() < 0.3:
            schema["maxItems"] = rng.randint(1, 3)
        if rng.random() < 0.1:
            schema["uniqueItems"] = True
        if rng.random() < 0.05:
            schema["unevaluatedItems"] = False
    return schema


def whole_schema(rng):
    schema = generated_schema(rng)
    if not isinstance(schema, dict):
        return schema
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"d": simple_schema(rng, 1)}, **schema}


def generated_value(rng, depth=3):
    kind = rng.choice(["int", "float", "string", "bool", "null", "object", "array", "object"])
    if kind == "int":
        return rng.randint(-30, 60)
    if kind == "float":
        return rng.choice([0.5, 1.0, -2.25, 3.75, 10.5, 2.0, 100.25])
    if kind == "string":
        return rng.choice(WORDS)
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "null" or depth == 0:
        return None
    if kind == "object":
        return {name: generated_value(rng, depth - 1) for name in rng.sample(NAMES + ["q"], rng.randint(0, 3))}
    return [generated_value(rng, depth - 1) for _ in range(rng.randint(0, 3))]


def mutated(rng, value):
    if isinstance(value, dict) and value and rng.random() < 0.8:
        out = dict(value)
        key = rng.choice(list(out))
        if rng.random() < 0.3:
            del out[key]
        elif rng.random() < 0.3:
            out[rng.choice(NAMES)] = generated_value(rng, 1)
        else:
            out[key] = mutated(rng, out[key])
        return out
    if isinstance(value, list) and value and rng.random() < 0.8:
        out = list(value)
        place = rng.randrange(len(out))
        if rng.random() < 0.3:
            del out[place]
        elif rng.random() < 0.3:
            out.append(generated_value(rng, 1))
        else:
            out[place] = mutated(rng, out[place])
        return out
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.7:
        return value + rng.choice([-1, 1, 0.5])
    return generated_value(rng, 1)


def run_lines(program, action, lines, *options):
    with tempfile.TemporaryFile("w+") as given:
        for line in lines:
            given.write(json.dumps(line, ensure_ascii=False) + "\n")
        given.seek(0)
        done = subprocess.run([program, "grammar", action, *options], stdin=given, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]  # not splitlines(): U+2028 is text


class Repeated(Exception):
    """A key that no schema names came twice: the documented exception."""


def strict_object(pairs):
    if len({key for key, _ in pairs}) < len(pairs):
        raise Repeated()
    return dict(pairs)


def validator_of(schema):
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    return kind(schema)


def test_walks(options, schemas):
    cases = [{"name": i, "schema": schema} for i, schema in enumerate(schemas)]
    cases += [{"name": f"regex {regex}", "regex": regex} for regex in REGEXES]
    totals, bad, seed, num_tokens = collections.Counter(), 0, options.seed, 0
    while num_tokens < options.tokens:
        for case, result in zip(cases, run_lines(options.program, "sample", cases, "--seed", str(seed), "--samples", "4",
                                                 "--max-tokens", "200")):
            if "error" in result:
                # A schema that is refused is no walk; one whose walk ends nowhere is wrong.
                kind = "dead end" if "no token is allowed" in result["error"] or "does not fit" in result["error"] else \
                       "no end found" if "no way to an end" in result["error"] else "refused"
                totals[kind] += 1
                if kind == "dead end":
                    bad += 1
                    print(f"DEAD END {json.dumps(case, ensure_ascii=False)[:400]}: {result['error'][:200]}")
                continue
            num_tokens += result["tokens"]
            for text in result["texts"]:
                totals["texts"] += 1
                try:
                    if "regex" in case:
                        wrong = None if re.fullmatch(case["regex"], text) else "no match"
                    else:
                        value = json.loads(text, object_pairs_hook=strict_object)
                        error = next(validator_of(case["schema"]).iter_errors(value), None)
                        wrong = error.message[:200] if error else None
                        if wrong and any(abs(x) >= 2**53 or x != round(x, 9) for x in numbers_of(value)):
                            totals["beyond doubles"] += 1  # jsonschema computes in floating point
                            wrong = None
                        if wrong and "\\n\"" in text.replace("\\u000a", "\\n").replace("\\u000A", "\\n"):
                            totals["end of line before $"] += 1  # Python's $ and . differ there
                            wrong = None
                except Repeated:
                    totals["repeated key"] += 1
                    continue
                except ValueError as error:
                    wrong = str(error)
                except Exception as error:  # a reference that jsonschema cannot resolve
                    totals[type(error).__name__] += 1
                    continue
                if wrong:
                    bad += 1
                    print(f"WRONG {json.dumps(case, ensure_ascii=False)[:400]}\n  text {text[:300]}\n  {wrong}")
        seed += 1
    print(f"walks: {num_tokens} tokens, {dict(totals)}, {bad} wrong")
    return bad


def test_differential(options):
    rng = random.Random(options.seed)
    totals, bad = collections.Counter(), 0
    schemas = [whole_schema(rng) for _ in range(options.schemas)]
    walks = run_lines(options.program, "sample", [{"name": i, "schema": s} for i, s in enumerate(schemas)],
                      "--samples", "4", "--max-tokens", "40")
    cases = []
    for number, (schema, walk) in enumerate(zip(schemas, walks)):
        values = [generated_value(rng) for _ in range(6)]
        for text in walk.get("texts", []):
            try:
                value = json.loads(text, object_pairs_hook=strict_object)
            except (Repeated, ValueError):
                continue
            values += [value, mutated(rng, value), mutated(rng, mutated(rng, value))]
        validator = validator_of(schema)
        tests = [{"data": value, "valid": validator.is_valid(value)} for value in values]
        cases.append({"name": number, "schema": schema, "tests": tests})
    for case, result in zip(cases, run_lines(options.program, "check", cases)):
        totals[result.get("status", "error")] += 1
        if result.get("status") != "ok":
            totals[result.get("reason", result.get("error", "")).split(" at ")[0]] += 1
            continue
        for test, verdict in zip(case["tests"], result["tests"]):
            totals["valid" if test["valid"] else "invalid"] += 1
            if verdict["accepted"] == test["valid"]:
                continue
            text = json.dumps(test["data"], ensure_ascii=False)
            if "\\n\"" in text or any(abs(x) >= 2**53 or x != round(x, 9) for x in numbers_of(test["data"])) or not plain(text):
                totals["not compared"] += 1
                continue
            bad += 1
            print(f"{'REJECTED' if test['valid'] else 'ACCEPTED'} {text[:200]}\n  {json.dumps(case['schema'], ensure_ascii=False)[:500]}")
    print(f"differential: {options.schemas} schemas, {dict(totals)}, {bad} wrong")
    return bad


def numbers_of(value):
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return []
    if isinstance(value, (int, float)):
        return [value]
    return [n for inner in (value.values() if isinstance(value, dict) else value) for n in numbers_of(inner)]


def plain(text):
    """Characters where Python's classes and ECMAScript's agree."""
    return all(" " <= c for c in text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--schemas", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", nargs="*", default=[])
    options = parser.parse_args()
    rng = random.Random(options.seed + 1)
    schemas = [whole_schema(rng) for _ in range(300)]
    for name in options.files:
        with gzip.open(name, "rt") as lines:
            schemas += [json.loads(line)["schema"] for line in lines]
    bad = test_differential(options) if options.schemas else 0
    if options.tokens:
        bad += test_walks(options, schemas)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
