#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares `deepinfer tokenize` with the PyPI package `tokenizers` on generated Unicode text.

    python3 scripts/tokenizer_differential.py --deepinfer build/release/bin/deepinfer \\
        --tokenizer testdata/codec/tokenizer_v41.json.gz --megabytes 100

Ids are compared without the added vocabulary (as prompts are encoded) and, for texts with spellings of control tokens, with
it. Prints the first differing texts in JSON and exits 1, or prints the amount compared and exits 0. `--write FILE` stores
the texts with the package's ids as JSON lines instead of comparing (a golden slice).
"""
import argparse
import gzip
import json
import random
import subprocess
import sys

from tokenizers import Tokenizer

BATCH = 128
WHITE = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2003\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
ODD = "\u200d\u200c\ufeff\u00ad\u2060\x00\x1b\x7f\ue000\U000f0000\u0378\U0001fffe\u3040\u3097\u3099\u309b\u30fb\u30a0"
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~。，、！？：；「」『』（）…—·￥«»€±×÷≤≥"
DIGITS = "0123456789٣٤٥०१२𝟘𝟙①②Ⅷ½０１２"
CODE = ["def ", "return", "    ", "\t", "();\n", "{\n", "}\n\n", "->", "::", "!=", "'s", "don't", "//", "/*", "*/", "#include <", "\r\n",
        "std::", "x_1", "camelCase", "0x1F", "\"key\": ", "[i]", "&&", "<div>", "</div>", "1.5e-3"]
BLOCKS = [(0x20, 0x7F), (0xA0, 0x250), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0xE00, 0x1000), (0x1000, 0x1200),
          (0x1100, 0x1200), (0x2000, 0x2070), (0x2070, 0x2BFF), (0x3000, 0x3130), (0x3130, 0x3200), (0x3400, 0x3500),
          (0x4E00, 0x9FFF), (0xA000, 0xA4D0), (0xAC00, 0xD7B0), (0xE000, 0xE100), (0xF900, 0xFB00), (0xFB50, 0xFE10),
          (0xFE10, 0xFFF0), (0x10000, 0x10400), (0x1D400, 0x1D800), (0x1F300, 0x1FAFF), (0x20000, 0x2A6E0), (0xE0100, 0xE01F0),
          (0, 0x110000)]


class Generator:
    def __init__(self, seed, vocabulary, spellings):
        self.rng = random.Random(seed)
        self.vocabulary = vocabulary
        self.spellings = spellings
        self.kinds = [self.block, self.block, self.tokens, self.tokens, self.mixed, self.white, self.numbers, self.code,
                      self.run, self.pattern, self.emoji, self.control, self.marks, self.everything]

    def char(self, low, high):
        while True:
            c = self.rng.randrange(low, high)
            if not 0xD800 <= c < 0xE000:
                return chr(c)

    def some(self, alphabet, n):
        return "".join(self.rng.choice(alphabet) for _ in range(n))

    def block(self, n):
        low, high = self.rng.choice(BLOCKS)
        return "".join(self.char(low, high) for _ in range(n))

    def everything(self, n):
        return "".join(self.char(0, 0x110000) for _ in range(n))

    def tokens(self, n):
        return "".join(self.rng.choice(self.vocabulary) for _ in range(max(1, n // 4)))

    def white(self, n):
        return self.some(WHITE if self.rng.random() < 0.5 else " \n\r\t", n)

    def numbers(self, n):
        return self.some(DIGITS, n)

    def code(self, n):
        return "".join(self.rng.choice(CODE) for _ in range(max(1, n // 4)))

    def run(self, n):
        return self.rng.choice(" \n\t=-_*#.aAxM中的。\u200d\u0301😀" + PUNCTUATION) * n

    def pattern(self, n):
        unit = self.mixed(self.rng.randrange(1, 6))
        return (unit * n)[:n]

    def emoji(self, n):
        return self.some("👨👩👧👦🏳️🌈👍🏽🇩🇪❤️\u200d\u200d\ufe0f", n)

    def marks(self, n):
        return self.some("aé한नि\u0301\u0300\u093e\u064b\u20dd ", n)

    def control(self, n):
        return self.some(["x", "<", "｜", " "], n % 3) + self.rng.choice(self.spellings)

    def mixed(self, n):
        return self.some(WHITE + ODD + PUNCTUATION + DIGITS + "aZéß中日語カナ한ж", n)

    def text(self):
        total = int(2 ** self.rng.uniform(0, 12))
        parts = []
        while total > 0:
            n = min(total, 1 + int(self.rng.expovariate(1 / 12)))
            parts.append(self.rng.choice(self.kinds)(n))
            total -= n
        if self.rng.random() < 0.01:
            parts.insert(self.rng.randrange(len(parts)), self.run(int(2 ** self.rng.uniform(8, 14))))
        return "".join(parts)


def load(path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
    with opened as file:
        return json.load(file)


def byte_of():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in own}
    for b in range(256):
        if b not in own:
            table[chr(0x100 + len(table) - len(own))] = b
    return table


def valid_tokens(vocab):
    table, out = byte_of(), []
    for written in vocab:
        if all(c in table for c in written):
            try:
                out.append(bytes(table[c] for c in written).decode())
            except UnicodeDecodeError:
                pass
    return out


def ids_of(tokenizer, texts):
    return [e.ids for e in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


def reference(plain, added, spellings, texts):
    ids = ids_of(plain, texts)
    spelled = [i for i, t in enumerate(texts) if any(s in t for s in ("<", "｜"))]
    with_added = dict(zip(spelled, ids_of(added, [texts[i] for i in spelled])))
    return [{"ids": a, **({"ids_with_added": with_added[i]} if with_added.get(i, a) != a else {})} for i, a in enumerate(ids)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deepinfer")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--megabytes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write")
    args = parser.parse_args()
    data = load(args.tokenizer)
    spellings = [t["content"] for t in data["added_tokens"]]
    added = Tokenizer.from_str(json.dumps(data))
    plain = Tokenizer.from_str(json.dumps({**data, "added_tokens": []}))
    generator = Generator(args.seed, valid_tokens(data["model"]["vocab"]), spellings)
    ours = None
    if not args.write:
        ours = subprocess.Popen([args.deepinfer, "tokenize", "--tokenizer", args.tokenizer], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out = gzip.open(args.write, "wt", encoding="utf-8") if args.write else None
    num_bytes = num_tokens = num_texts = num_wrong = 0
    while num_bytes < args.megabytes * 1e6:
        texts = [generator.text() for _ in range(BATCH)]
        expected = reference(plain, added, spellings, texts)
        for text, want in zip(texts, expected):
            num_bytes += len(text.encode())
            num_tokens += len(want["ids"])
            num_texts += 1
            line = json.dumps({"text": text}, ensure_ascii=False)
            if out:
                out.write(json.dumps({"text": text, **want}, ensure_ascii=False, separators=(",", ":")) + "\n")
                continue
            ours.stdin.write(line.encode() + b"\n")
            ours.stdin.flush()
            got = json.loads(ours.stdout.readline())
            if got != want:
                num_wrong += 1
                if num_wrong <= 5:
                    print(line, file=sys.stderr)
    if ours:
        ours.stdin.close()
    print(f"{num_texts} texts, {num_bytes} bytes, {num_tokens} tokens, {num_wrong} differ (seed {args.seed})")
    sys.exit(1 if num_wrong else 0)


main()
