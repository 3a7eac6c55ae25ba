#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Greedy answers of the mini model on two backends, token by token.

    python3 scripts/compare_answers.py prompts FILE [--count 1000]
    python3 scripts/compare_answers.py compare A.jsonl B.jsonl [--gap 0.25] [--share 0.25]

`prompts` writes Chat Completions bodies for `deepinfer generate --chat-batch`: those of testdata/mini, then words to copy, to
reverse and to sort. `compare` reads two results of it, made with `--logprobs 2`: counts answers and tokens that differ. The
first token of an answer that differs must have been close: in A the two likeliest tokens are no further apart than --gap (in
logarithms of probability; 0, the default: nothing may differ). Behind it the two answers are different texts. With --share that
part of the answers may differ anyhow; those that no close pair explains are counted, and how many each gap of a list explains.
"""
import argparse
import json
import os
import random
import sys

WORDS = "apple river stone green house cloud table music light paper horse bread water chair night garden".split()


def body(text):
    return {"model": "DeepSeek-V4.1-Flash", "temperature": 0, "messages": [{"role": "user", "content": text}]}


def write_prompts(path, count):
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "testdata", "mini", "chat_prompts.jsonl")
    with open(here) as f:
        bodies = [json.loads(line) for line in f if line.strip()][:count]
    rng = random.Random(11)
    while len(bodies) < count:
        words = " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 16)))
        bodies.append(body(rng.choice(["Copy this: ", "Reverse the order of these words: ", "Sort these words alphabetically: ",
                                       "Repeat this text exactly: "]) + words))
    with open(path, "w") as f:
        for one in bodies:
            one["temperature"] = 0
            f.write(json.dumps(one) + "\n")


def gap_at(logprobs, i):
    """How far apart the two likeliest tokens of position i are, or None where the result does not say."""
    try:
        top = logprobs[i]["top"]
        return top[0]["logprob"] - top[1]["logprob"]
    except (TypeError, KeyError, IndexError):
        return None


GAPS = (0.0625, 0.125, 0.25, 0.5, 1.0)


def compare(a_path, b_path, gap_max, share_max):
    with open(a_path) as a, open(b_path) as b:
        ours, theirs = [json.loads(line) for line in a], [json.loads(line) for line in b]
    if len(ours) != len(theirs) or not ours:
        sys.exit(f"{len(ours)} answers in {a_path}, {len(theirs)} in {b_path}")
    different = tokens = equal = unexplained = 0
    widest = 0.0
    gaps = []
    for n, (x, y) in enumerate(zip(ours, theirs)):
        if "token_ids" not in x or "token_ids" not in y:
            sys.exit(f"line {n + 1}: {json.dumps(x)[:200]} / {json.dumps(y)[:200]}")
        p, q = x["token_ids"], y["token_ids"]
        tokens += len(p)
        same = next((i for i in range(min(len(p), len(q))) if p[i] != q[i]), min(len(p), len(q)))
        equal += same
        if p == q:
            continue
        different += 1
        gap = gap_at(x.get("logprobs"), same)
        gaps.append(float("inf") if gap is None else gap)
        if gap is None or gap > gap_max:
            unexplained += 1
            print(f"line {n + 1}, token {same}: {p[same:same + 3]} / {q[same:same + 3]}, gap {gap}")
        else:
            widest = max(widest, gap)
    if gaps:
        print("explained by a gap of at most: " + ", ".join(f"{g:g}: {sum(x <= g for x in gaps)}" for g in GAPS))
    print(f"{len(ours)} answers, {tokens} tokens: {different} answers differ, {equal} tokens stand before the first difference; "
          f"{unexplained} differences not explained by a gap of at most {gap_max}, widest explained {widest:.4f}")
    sys.exit(1 if unexplained and different > share_max * len(ours) else 0)


def main():
    parser = argparse.ArgumentParser()
    sub = parser.add_subparsers(dest="what", required=True)
    prompts = sub.add_parser("prompts")
    prompts.add_argument("file")
    prompts.add_argument("--count", type=int, default=1000)
    both = sub.add_parser("compare")
    both.add_argument("a")
    both.add_argument("b")
    both.add_argument("--gap", type=float, default=0)
    both.add_argument("--share", type=float, default=0)
    args = parser.parse_args()
    if args.what == "prompts":
        write_prompts(args.file, args.count)
    else:
        compare(args.a, args.b, args.gap, args.share)


if __name__ == "__main__":
    main()
