"""Encodes rendered prompts: control tokens by name, plain text with the BPE alone (an empty added vocabulary)."""
import json
import re
import unicodedata

import numpy as np

CACHE_ENTRIES, LONGEST_CACHED = 200_000, 400
LINE = re.compile(r"[^\n]*\n+|[^\n]+")


def cut_lines(text):
    """Pieces that encode independently: after a line break when no white space or combining mark follows."""
    pieces, pending = [], ""
    for line in LINE.findall(text):
        if pending and not (line[0].isspace() or unicodedata.category(line[0]).startswith("M")):
            pieces.append(pending)
            pending = ""
        pending += line
    return pieces + [pending] if pending else pieces


class PromptTokenizer:
    def __init__(self, path):
        from tokenizers import Tokenizer
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        self.special_ids = {token["content"]: token["id"] for token in document["added_tokens"]}
        self.vocab_size = max(self.special_ids.values()) + 1
        self.full = Tokenizer.from_file(path)
        document["added_tokens"] = []
        self.bare = Tokenizer.from_str(json.dumps(document, ensure_ascii=False))
        self.cache = {}

    def encode_plain(self, text):
        ids = []
        for piece in cut_lines(text):
            found = self.cache.get(piece)
            if found is None:
                found = self.bare.encode(piece, add_special_tokens=False).ids
                if len(self.cache) >= CACHE_ENTRIES:
                    self.cache.clear()
                if len(piece) <= LONGEST_CACHED:
                    self.cache[piece] = found
            ids += found
        return ids

    def encode_runs(self, runs):
        """-> ids, is_target (the model is meant to produce this token), [(position, image index)]"""
        ids, target, placeholders = [], [], []
        for run in runs:
            if run.image is not None:
                placeholders.append((len(ids), run.image))
            new = [self.special_ids[run.text]] if run.special else self.encode_plain(run.text)
            ids += new
            target += [run.target] * len(new)
        return np.array(ids, np.int32), np.array(target, bool), placeholders

    def decode(self, ids):
        return self.full.decode(list(map(int, ids)), skip_special_tokens=False)
