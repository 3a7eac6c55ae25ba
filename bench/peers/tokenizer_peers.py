#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peers of the bench `tokenizer`: the PyPI packages tokenizers, tiktoken and deepseek-recipe on the same texts.

    python3 bench/peers/tokenizer_peers.py TOKENIZER.json[.gz] MANIFEST.json

MANIFEST is an array of {name, file}. Prints one JSON object a line: {peer, name, tokens, tokens_per_second}. One thread, CPU time, the
best of three runs (one when a run takes longer than two seconds); a peer that is not installed is left out, with a line on
stderr. tiktoken has no way to split in three steps, so it gets the nearest single pattern and its ids differ a little.
"""
import gzip
import json
import os
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
PATTERN = r"""\p{N}{1,3}|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+|[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""


def byte_of():
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {chr(b): b for b in own}
    for b in range(256):
        if b not in own:
            table[chr(0x100 + len(table) - len(own))] = b
    return table


def make_tokenizers(data):
    import tokenizers

    plain = tokenizers.Tokenizer.from_str(json.dumps({**data, "added_tokens": []}))
    return lambda text: len(plain.encode(text, add_special_tokens=False).ids)


def make_tiktoken(data):
    import tiktoken

    table = byte_of()
    ranks = {bytes(table[c] for c in k): v for k, v in data["model"]["vocab"].items() if all(c in table for c in k)}
    encoding = tiktoken.Encoding("v41", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return lambda text: len(encoding.encode_ordinary(text))


def make_recipe(data):
    import deepseek_recipe

    path = f"/tmp/tokenizer_peers_{os.getpid()}.json"
    with open(path, "w") as file:
        json.dump(data, file)
    try:
        tokenizer = deepseek_recipe.Tokenizer.from_file(path)
    finally:
        os.remove(path)
    return lambda text: len(tokenizer.encode(text))


def measure(encode, text):
    best = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        tokens = encode(text)
        seconds = time.thread_time() - begin
        best = min(best, seconds)
        if seconds > 2:
            break
    return tokens, tokens / best


def main():
    tokenizer, manifest = sys.argv[1:3]
    if os.path.isdir(tokenizer):
        tokenizer = os.path.join(tokenizer, "tokenizer.json")
    with (gzip.open if tokenizer.endswith(".gz") else open)(tokenizer, "rt", encoding="utf-8") as file:
        data = json.load(file)
    with open(manifest) as file:
        texts = [(t["name"], open(t["file"], encoding="utf-8", newline="").read()) for t in json.load(file)]
    for name, make in (("tokenizers", make_tokenizers), ("tiktoken", make_tiktoken), ("deepseek-recipe", make_recipe)):
        try:
            encode = make(data)
        except (ImportError, AttributeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        for text_name, text in texts:
            try:
                tokens, rate = measure(encode, text)
            except BaseException as error:  # tiktoken panics where its regex engine gives up
                print(f"{name}: {text_name}: {error}", file=sys.stderr)
                continue
            print(json.dumps({"peer": name, "name": text_name, "tokens": tokens, "tokens_per_second": rate}), flush=True)


main()
