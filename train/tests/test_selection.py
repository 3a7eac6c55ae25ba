"""The selection kernels against plain sorting, on rows of several documents with many equal scores.

    TRITON_INTERPRET=1 python3 -m train.tests.test_selection            # on a CPU
    python3 -m train.tests.test_selection cuda [TOKENS]
"""
import sys
from types import SimpleNamespace

import numpy as np
import torch

from .. import selection


def rows_of(lengths, tokens):
    start = np.zeros(tokens, np.int32)
    place = 0
    for length in lengths:
        start[place:place + length] = place
        place += length
    start[place:] = np.arange(place, tokens) // 2 * 2
    return torch.from_numpy(start)


def inputs(tokens, ratio, seed):
    generator = torch.Generator().manual_seed(seed)
    coarse = lambda *shape: (torch.randint(-3, 4, shape, generator=generator) / 2).bfloat16()      # few values: many ties
    query, keys = coarse(tokens, 4, 32), coarse(tokens // ratio, 32)
    return query, keys, torch.randn(tokens, 4, generator=generator).bfloat16().float()


def seen_bits(bits, rows, start, ratio, topk):
    """Bits of rows that see more than top-k, without what lies behind the newest visible entry."""
    chosen, visible = selection.unpacked(bits), (rows - start + 1) // ratio
    place = torch.arange(chosen.shape[1], device=bits.device)[None]
    return torch.where((visible > topk)[:, None], chosen & (place < visible[:, None]), False)


def main(device="cpu", tokens="512"):
    tokens = int(tokens)
    topk, kept, block = (32, 8, 8) if tokens <= 1024 else (512, 128, 8)
    config = SimpleNamespace(index_topk=topk, candidate_topk_blocks=kept, candidate_block_size=block, candidate_source_layer_id=4,
                             index_source_layer_ids=(2, 4, 6), compress_ratios=(0, 0, 2, 2, 1, 1, 1, 1))
    selection.SIZES = (256,) if tokens <= 1024 else selection.SIZES
    start = rows_of([tokens // 16 * 2, tokens // 8 * 5, tokens // 8], tokens).to(device)
    selector = selection.Selector(config, tokens, min(tokens, 32768), device)
    assert selector.on_kernels, "set TRITON_INTERPRET=1 on a CPU"
    rows = torch.arange(0, tokens, max(1, tokens // 1024), device=device)
    candidates = None
    for source in config.index_source_layer_ids:
        ratio = config.compress_ratios[source]
        query, keys, weight = (value.to(device) for value in inputs(tokens, ratio, source))
        free = ((torch.arange(tokens, device=device) - start + 1) // ratio <= topk).int()
        selector.select(source, query, keys, weight, start, free)
        plain = selection.plain_scores(query[rows], keys, weight[rows], rows, start[rows].long(), ratio, selector.width // ratio)
        scores = selector.scratch.view(-1)[:tokens * plain.shape[1]].view(tokens, -1)[rows].float()
        there = (plain > float("-inf")) & (free[rows] == 0)[:, None]
        error = float((scores - plain)[there].abs().max() / plain[there].abs().max())
        scores = scores.masked_fill(plain == float("-inf"), float("-inf"))
        candidates, wanted = selector.plain_rows(source, scores, rows, start[rows].long(), ratio, candidates)
        mine, wanted = (seen_bits(bits, rows, start[rows], ratio, topk) for bits in (selector.bits[source][rows], wanted))
        different = int((mine != wanted).any(1).sum())
        print(f"source {source}: {int(wanted.any(1).sum())} rows with a choice, chosen {int(wanted.sum(1).max())}, different {different}; "
              f"scores off by {error:.1e}, {int((scores != plain)[there].sum())} of {int(there.sum())} differ")
        assert wanted.any() and different == 0 and error < 0.01      # the interpreter cuts instead of rounding to bf16


if __name__ == "__main__":
    main(*sys.argv[1:])
