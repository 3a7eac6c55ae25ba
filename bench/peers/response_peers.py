#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peer of the bench `response`: deepseek-recipe 0.2.0 on the same token ids, one id a step, each event serialised.

    python3 bench/peers/response_peers.py TOKENIZER.json[.gz] TURNS.json

TURNS is {"requests": {protocol: body}, "turns": [[id, ...], ...]}. Prints one JSON object a line: {peer, protocol, tokens,
tokens_per_second}. One thread, CPU time, the best of three runs.
"""
import gzip
import json
import sys
import time

import deepseek_recipe as d

KINDS = {"chat": d.ChatCompletionRequest, "responses": d.ResponsesRequest, "messages": d.MessagesRequest}


def run(kind, body, tokenizer, turns):
    num_bytes = 0
    for turn in turns:
        converted = kind(body).convert(d.ConversionOptions())
        generator = kind.chunk_generator(converted, "resp-1", "DeepSeek-V4.1-Flash")
        processor = d.StreamProcessor(generator, converted.parsing_options, tokenizer)
        for token in turn:
            for event in processor.push(d.InferenceChunk.tokens([token])):
                num_bytes += len(event.to_json())
        for event in processor.push(d.InferenceChunk.finish(d.InferenceFinishReason.Stop)):
            num_bytes += len(event.to_json())
    return num_bytes


def main():
    opener = gzip.open if sys.argv[1].endswith(".gz") else open
    tokenizer = d.Tokenizer.from_str(opener(sys.argv[1], "rt", encoding="utf-8").read())
    with open(sys.argv[2], encoding="utf-8") as file:
        data = json.load(file)
    tokens = sum(len(turn) for turn in data["turns"])
    for protocol, body in data["requests"].items():
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            run(KINDS[protocol], json.dumps(body), tokenizer, data["turns"])
            best = min(best, time.process_time() - start)
        print(json.dumps({"peer": "deepseek-recipe", "protocol": protocol, "tokens": tokens, "tokens_per_second": tokens / best}), flush=True)


if __name__ == "__main__":
    main()
