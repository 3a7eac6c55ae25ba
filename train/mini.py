"""Writes an untrained mini model: python3 -m train.mini TOKENIZER_FOLDER OUT_FOLDER"""
import json
import sys

from . import checkpoint, config, engram, parameters
from .build_tokenizer import CONTROL_TOKENS


def load_config(tokenizer_folder, **changes):
    """-> the configuration that fits a tokenizer, and its token map"""
    with open(f"{tokenizer_folder}/tokenizer.json", encoding="utf-8") as file:
        document = json.load(file)
    special_ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    assert all(token in special_ids for token in CONTROL_TOKENS)
    token_map = engram.token_map(document)
    return config.mini(special_ids, int(token_map.max()) + 1, **changes), token_map


def main(tokenizer_folder, out):
    model_config, _ = load_config(tokenizer_folder)
    values, biases = parameters.initial(model_config)
    print(sum(value.numel() for value in values.values()), "parameters,",
          checkpoint.write(out, values, biases, model_config, tokenizer_folder), "bytes")


if __name__ == "__main__":
    main(*sys.argv[1:])
