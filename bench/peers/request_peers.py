#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Peer of the bench `codec`: deepseek-recipe 0.2.0 on the same request bodies, JSON text to token ids.

    python3 bench/peers/request_peers.py TOKENIZER.json[.gz] BODIES.json

BODIES is {protocol: body as text}. Prints one JSON object a line: {peer, protocol, tokens, tokens_per_second}. CPU time of
the process (it encodes on several threads where there are several cores), the best of five runs.
"""
import gzip
import json
import sys
import time

import deepseek_recipe as d

KINDS = {"chat": d.ChatCompletionRequest, "responses": d.ResponsesRequest, "messages": d.MessagesRequest}


def main():
    opener = gzip.open if sys.argv[1].endswith(".gz") else open
    encoding = d.DeepseekV41Encoding().with_tokenizer(d.Tokenizer.from_str(opener(sys.argv[1], "rt", encoding="utf-8").read()))
    with open(sys.argv[2], encoding="utf-8") as file:
        bodies = json.load(file)
    for protocol, body in bodies.items():
        best, tokens = float("inf"), 0
        for _ in range(5):
            begin = time.process_time()
            tokens = len(encoding.encode(KINDS[protocol](body).convert(d.ConversionOptions()).conversation))
            best = min(best, time.process_time() - begin)
        print(json.dumps({"peer": "deepseek-recipe", "protocol": protocol, "tokens": tokens, "tokens_per_second": tokens / best}), flush=True)


if __name__ == "__main__":
    main()
