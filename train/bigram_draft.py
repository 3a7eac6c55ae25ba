"""Gives an untrained draft head a first use: its Markov part becomes a table of which token follows which.

    python3 -m train.bigram_draft MODEL_FOLDER OUT_FOLDER

The three draft blocks stay as they were initialised and are turned down (final norm weight near zero); the rank of the
Markov head holds a factored bigram model of answer tokens, and one of its dimensions carries the confidence. Training of
the whole head (train/draft.py) replaces all of this.
"""
import os
import shutil
import sys

import numpy as np
import torch

from . import checkpoint, mini, packing
from .tokenizer import PromptTokenizer

NUM_DOCUMENTS = 30_000
STEPS, RATE, DECAY = 400, 0.05, 1e-5
QUIET_NORM = 1 / 64             # what is left of the blocks' own logits
UNKNOWN = -4.0                  # confidence after a token that never came before another in an answer
MOST_SURE = 6.0


def answer_sequences(source, number):
    """Token sequences of answers, each from its first token on."""
    families = [family for family in packing.SHARES if family not in packing.FIXED_SHARES]
    for place in range(number):
        encoded = source.draw(families[place % len(families)])
        target = encoded.weights >= 1
        edges = np.flatnonzero(np.diff(np.concatenate(([0], target.astype(np.int8), [0]))))
        for begin, end in zip(edges[::2], edges[1::2]):
            yield encoded.ids[begin:end]


def count_pairs(sequences, vocab_size):
    counts = np.zeros((vocab_size, vocab_size), np.float32)
    for ids in sequences:
        np.add.at(counts, (ids[:-1], ids[1:]), 1)
    return torch.from_numpy(counts)


def fit(counts, rank):
    """-> embedding [V, rank], head [V, rank]; the last two dimensions of the rank are kept free"""
    seen, following = torch.nonzero(counts.sum(1)).flatten(), torch.nonzero(counts.sum(0)).flatten()
    table = counts[seen][:, following]
    table = torch.cat((table, table.sum(0, keepdim=True)))       # the last row serves all tokens that were not seen
    share = table / table.sum(1, keepdim=True)
    weight = table.sum(1).clamp(max=1e4).sqrt()
    generator = torch.Generator().manual_seed(1)
    left, right = (torch.randn(size, rank - 2, generator=generator).mul_(0.3).requires_grad_() for size in table.shape)
    optimiser = torch.optim.Adam([left, right], RATE, weight_decay=DECAY)
    for step in range(STEPS):
        optimiser.param_groups[0]["lr"] = RATE * (1 - step / STEPS)
        loss = -((share * torch.log_softmax(left @ right.t(), -1)).sum(1) * weight).sum() / weight.sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    print("bigram loss", float(loss), "entropy", float((-(share * torch.log(share.clamp(min=1e-9))).sum(1) * weight).sum() / weight.sum()))
    embedding, head = torch.zeros(counts.shape[0], rank), torch.zeros(counts.shape[0], rank)
    embedding[:, :-2] = left.detach()[-1]
    embedding[seen, :-2], head[following, :-2] = left.detach()[:-1], right.detach()
    best = (embedding[seen] @ head.t()).argmax(1)
    right_share = (counts[seen, best] / counts[seen].sum(1)).clamp(1e-3, 1 - 1e-3)
    embedding[:, -1] = UNKNOWN
    embedding[seen, -1] = torch.logit(right_share).clamp(-MOST_SURE, MOST_SURE)
    return embedding, head


def accepted_per_step(sequences, embedding, head, length=5):
    """Drafts accepted per step when answers are walked greedily; answers of at least 20 tokens."""
    following = (embedding.bfloat16().float() @ head.bfloat16().float().t()).argmax(1).numpy()
    steps = accepted = 0
    for ids in sequences:
        place = 0
        while len(ids) >= 20 and place < len(ids) - 1:
            token, good = ids[place], 0
            while good < length and place + good + 1 < len(ids) and following[token] == ids[place + good + 1]:
                token, good = ids[place + good + 1], good + 1
            steps, accepted, place = steps + 1, accepted + good, place + good + 1
    return accepted / max(steps, 1)


def main(folder, out):
    tokenizer = PromptTokenizer(f"{folder}/tokenizer.json")
    config, _ = mini.load_config(folder)
    make = lambda seed: packing.Source(seed, tokenizer, config, "some words " * 3000, np.arange(300, 3000, dtype=np.int32), (None,))
    embedding, head = fit(count_pairs(answer_sequences(make("bigram"), NUM_DOCUMENTS), config.vocab_size), config.dspark_markov_rank)
    print("accepted drafts per step", accepted_per_step(answer_sequences(make("bigram test"), 600), embedding, head))
    last = f"mtp.{config.num_nextn_predict_layers - 1}."
    confidence = torch.zeros(1, config.hidden_size + config.dspark_markov_rank)
    confidence[0, -1] = 1
    changed = {last + "markov_head.embed.weight": embedding, last + "markov_head.head.weight": head,
               last + "confidence_head.proj.weight": confidence, last + "norm.weight": torch.full((config.hidden_size,), QUIET_NORM)}
    os.makedirs(out, exist_ok=True)
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".safetensors"):
            shutil.copy(f"{folder}/{name}", f"{out}/{name}")
            continue
        items = [(key, tag, checkpoint.bf16_bits(changed[key]) if key in changed else array)
                 for key, (tag, array) in checkpoint.load_safetensors(f"{folder}/{name}").items()]
        checkpoint.save_safetensors(f"{out}/{name}", items, {"format": "pt"})


if __name__ == "__main__":
    main(*sys.argv[1:])
