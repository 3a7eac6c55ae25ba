#!/usr/bin/env python3
"""Runs llguidance on the cases of `deepinfer bench grammar --peer`: the same schemas, the same tokens, one thread.

Usage: bench/peers/grammar_peer.py CASES.jsonl TOKENIZER.json[.gz]. A line of CASES: {"schema", "tests": [{"tokens", "valid"}]}.
Prints "name value" lines; CPU time of the thread, in microseconds.
"""
import gzip
import json
import sys
import time

import llguidance.numpy
from llguidance import LLMatcher, LLTokenizer


def main():
    opener = gzip.open if sys.argv[2].endswith(".gz") else open
    with opener(sys.argv[2], "rt") as text:
        tokenizer = LLTokenizer(text.read())
    row = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    masks, firsts, schemas, right, refused, accepted_wrongly, rejected_wrongly = [], [], 0, 0, 0, 0, 0
    with open(sys.argv[1]) as lines:
        for line in lines:
            case = json.loads(line)
            schemas += 1
            begin = time.thread_time_ns()
            try:
                matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(json.dumps(case["schema"])))
                failed = matcher.is_error()
            except ValueError:
                failed = True
            compiled_us = (time.thread_time_ns() - begin) / 1e3
            if failed:
                refused += 1
                continue
            all_right = True
            for test in case["tests"]:
                matcher.reset()
                accepted, first = True, True
                for token in test["tokens"]:
                    begin = time.thread_time_ns()
                    llguidance.numpy.fill_next_token_bitmask(matcher, row, 0)
                    allowed = row[0, token // 32] >> (token % 32) & 1
                    moved = bool(allowed) and matcher.consume_token(token)
                    us = (time.thread_time_ns() - begin) / 1e3
                    masks.append(us)
                    if first:
                        firsts.append(compiled_us + us)
                    first = False
                    if not moved:
                        accepted = False
                        break
                accepted = accepted and matcher.is_accepting()
                accepted_wrongly += accepted and not test["valid"]
                rejected_wrongly += not accepted and test["valid"]
                all_right &= accepted == test["valid"]
            right += all_right
    masks.sort()
    firsts.sort()
    at = lambda values, share: values[int(share * (len(values) - 1))]
    print(f"right {100 * right / schemas}")
    print(f"accepted_wrongly {accepted_wrongly}")
    print(f"rejected_wrongly {rejected_wrongly}")
    print(f"mean {sum(masks) / len(masks)}")
    for name, share in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)]:
        print(f"{name} {at(masks, share)}")
    for name, share in [("first_p50", 0.5), ("first_p99", 0.99)]:
        print(f"{name} {at(firsts, share)}")


if __name__ == "__main__":
    main()
