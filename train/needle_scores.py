"""Scores long needle prompts with the packed model, which reads thirty thousand tokens in milliseconds.

    python3 -m train.needle_scores TOKENIZER_FOLDER OUT.npz [COUNT]      # writes the prompts; train.run --needles scores them

The prompts are those of train/evaluate.py; an answer is right when every token of it carries the largest logit.
"""
import os
import sys

import numpy as np
import torch

from . import evaluate, mini, packing
from .run import Stage
from .tokenizer import PromptTokenizer


def write_prompts(folder, out, count):
    tokenizer = PromptTokenizer(f"{folder}/tokenizer.json")
    config, _ = mini.load_config(folder)
    ids, weights, lengths, labels = [], [], [], []
    for label, family in enumerate(evaluate.NEEDLE_TOKENS):
        for case in evaluate.all_cases(count, [family]):
            encoded = packing.encode_dialogue(case.dialogue, tokenizer, config)
            ids.append(encoded.ids)
            weights.append(encoded.weights)
            lengths.append(len(encoded.ids))
            labels.append(label)
        print(family, "tokens", min(lengths[-count:]), "to", max(lengths[-count:]), flush=True)
    np.savez(out + ".new.npz", ids=np.concatenate(ids), weights=np.concatenate(weights), lengths=lengths, labels=labels)
    os.replace(out + ".new.npz", out)


def load_prompts(path):
    saved = np.load(path)
    ends = np.cumsum(saved["lengths"])
    return [packing.Encoded(saved["ids"][end - size:end], saved["weights"][end - size:end], [], int(label))
            for end, size, label in zip(ends, saved["lengths"], saved["labels"])]


def buffers(prompts, tokens, config):
    packer, rng = packing.Packer(tokens, config), np.random.default_rng(0)
    for encoded in prompts:
        if not packer.add(encoded):
            yield packer.finish(rng)
            packer = packing.Packer(tokens, config)
            packer.add(encoded)
    yield packer.finish(rng)


class NeedleScores(Stage):
    def __init__(self, trunk, device):
        super().__init__(device)
        self.trunk = trunk

    def step(self):
        trunk, batch = self.trunk, self.static
        hidden, _ = trunk.forward(batch)
        rows = batch["target_rows"]
        _, _, hits = trunk.run.answer_loss(hidden[rows], trunk.values["norm"], trunk.values["head"], batch["ids"][rows + 1],
                                           batch["target_weights"])
        self.count_documents(rows, (batch["target_weights"] >= 1).float(), hits.float())

    def score(self, prompts, tokens):
        """-> percent right by family"""
        for number, arrays in enumerate(buffers(prompts, tokens, self.trunk.config)):
            batch = {name: torch.as_tensor(value).to(self.device) for name, value in arrays.items()}
            if number == 1 and torch.cuda.is_available():
                self.capture()
            self.run(batch)
        torch.cuda.synchronize()
        return {family: round(float(100 * self.right[label] / self.judged[label].clamp(min=1)), 1)
                for label, family in enumerate(evaluate.NEEDLE_TOKENS)}


if __name__ == "__main__":
    write_prompts(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 100)
