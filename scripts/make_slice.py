#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A slice of the released model at its real widths, with random packed weights: for tests and benches of real shapes.

    python3 scripts/make_slice.py OUT_DIR [--experts 32] [--draft 0] [--seed slice-1] [--vocab 129280]

Six layers in the roles of the released layers 0-3 (window, window + Engram, full at ratio 2, its reuse) and 20-21 (full at
ratio 1 + candidate source, its reuse); hidden 5120, 64 heads of 512, experts of 2304, context of 1,048,576; embedding and
head whole; 32 experts instead of 384; one Engram table of 25,874 rows instead of 384 million; no vision, no drafts unless
asked for. About 7.4 GB, of which a run touches what it uses. Needs NumPy.

Every tensor is drawn from its own generator, PCG64 seeded with sha256("SEED/NAME"), so neither order nor size of the pieces
matters. FP4 codes are uniform; FP8 codes keep two binades (0.5 to 1.9); block exponents carry -1/0/+1; bf16 and fp32 are
normal. Overall deviations follow the real model's statistics (specification, model.md 7) up to a power of two.
"""
import argparse
import gzip
import hashlib
import json
import math
import os
import shutil
import struct
import time
from statistics import NormalDist

import numpy as np

from make_released_layout import SIZE, inventory, tensor_bytes

HERE = os.path.dirname(os.path.abspath(__file__))
PIECE = 64 << 20
JITTER_RMS = math.sqrt((.25 + 1 + 4) / 3)
FP8_RMS, FP4_RMS = 1.1588, 2.9262      # of the codes as drawn below
GAIN = {"wq_a": 1.6, "indexer.wq_b": 1.0, "wq_b": 1.0, "attn.wkv": 1.8, "wo_a": 1.6, "wo_b": .4, "w1": 1.5, "w3": 1.5, "w2": 1.5,
        "gate": 2.9, "compressor.wkv": 1.8, "wgate": 40., "wk": 1., "weights_proj": 8., "engram.wkv": .1, "head": 3.,
        "markov_head.head": 3.}
NORM_MEAN = {"attn_norm": .025, "ffn_norm": .2, "q_norm": .97, "kv_norm": .4, "compressor.norm": .6, "k_norm": .5}


def suffix_value(table, name, default):
    """Value of the longest key that ends `name`."""
    keys = [k for k in table if name == k or name.endswith("." + k)]
    return table[max(keys, key=len)] if keys else default


def primes_from(start, count, taken):
    out, n = [], start - 1
    while len(out) < count:
        n += 1
        if n > 1 and n not in taken and all(n % d for d in range(2, math.isqrt(n) + 1)):
            out.append(n)
            taken.add(n)
    return out


def slice_config(released, experts, draft, vocab):
    c = json.loads(json.dumps(released))
    t = c["text_config"]
    taken, rows = set(), 0
    for _ in range(t["engram_max_ngram_size"] - 1):
        rows += sum(primes_from(1000, t["engram_n_heads"], taken))
    t.update(vocab_size=vocab, num_hidden_layers=6, compress_ratios=[0, 0, 2, 2, 1, 1] + [0] * draft, kv_source_layer_ids=[2, 4],
             index_source_layer_ids=[2, 4], candidate_source_layer_id=4, n_routed_experts=experts, engram_layer_ids=[1],
             engram_num_embeddings=[rows], engram_vocab_size=1000, num_nextn_predict_layers=draft,
             dspark_target_layer_ids=[3, 4, 5], dspark_n_routed_experts=min(experts, t["dspark_n_routed_experts"]))
    c["vision_config"] = None
    return c


class Random:
    """Bytes of one tensor, in pieces."""

    def __init__(self, seed, name):
        key = hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16]
        self.bits = np.random.PCG64(int.from_bytes(key, "little"))

    def bytes(self, n):
        return np.asarray(self.bits.random_raw((n + 7) // 8), "<u8").view(np.uint8)[:n]


def normal_table(mean, std):
    half = [NormalDist().inv_cdf((i + .5) / 65536) for i in range(32768, 65536)]
    return np.float32(mean) + np.float32(std) * np.array([-x for x in reversed(half)] + half, np.float32)


def bf16_bits(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def spread(name, shape):
    """Mean and deviation of a BF16 or F32 tensor."""
    stem = name.removesuffix(".weight")
    if name.endswith("norm.weight"):
        mean = suffix_value(NORM_MEAN, stem, 1.)
        return mean, .1 * mean
    if stem in ("embed", "markov_head.embed"):
        return 0., 1.
    if name.endswith(("q_weight", "k_weight")):
        return 1., .3
    if name.endswith("_scale"):
        return .7, .2
    if name.endswith(("_base", "attn_sink")):
        return 0., .5
    if name.endswith("bias"):
        return 0., .1
    return 0., suffix_value(GAIN, stem, 1.) * shape[-1] ** -.5


def scale_exponent(name, in_columns):
    """Block exponent that gives a quantised matrix its deviation."""
    if ".engram.embed" in name:
        return round(math.log2(1 / FP8_RMS / JITTER_RMS))
    rms = FP4_RMS if ".ffn.experts." in name else FP8_RMS
    return round(math.log2(suffix_value(GAIN, name, 1.) * in_columns ** -.5 / rms / JITTER_RMS))


def pieces(seed, name, dtype, shape, in_columns):
    """Yields the tensor's bytes as arrays."""
    random, left = Random(seed, name), math.prod(shape)
    table = None
    if dtype in ("BF16", "F32"):
        table = normal_table(*spread(name, shape))
        table = bf16_bits(table) if dtype == "BF16" else table
    exponent = scale_exponent(name.rsplit(".", 1)[0], in_columns) if dtype == "F8_E8M0" else 0
    while left:
        n = min(left, PIECE // 2)
        left -= n
        if table is not None:
            yield table[random.bytes(2 * n).view("<u2")]
        elif dtype == "I8":
            yield random.bytes(n)
        elif dtype == "F8_E4M3":
            yield random.bytes(n) & np.uint8(0x8F) | np.uint8(0x30)
        else:
            jitter = (random.bytes(n).astype(np.uint16) * 3 >> 8).astype(np.uint8)
            yield jitter + np.uint8(exponent + 126)


def write_shard(path, tensors, seed):
    order = sorted(tensors, key=lambda x: (-SIZE[x[1]], x[0]))
    columns = {n.removesuffix(".weight"): s[-1] * (2 if d == "I8" else 1) for n, d, s in tensors}
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in order:
        n = tensor_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name, dtype, shape in order:
            for piece in pieces(seed, name, dtype, shape, columns.get(name.removesuffix(".scale"))):
                f.write(piece.data)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--config", default=f"{HERE}/../testdata/released/config.json")
    parser.add_argument("--tokenizer", default=f"{HERE}/../testdata/codec/tokenizer_v41.json.gz")
    parser.add_argument("--experts", type=int, default=32)
    parser.add_argument("--draft", type=int, default=0, help="draft layers (0 to 3)")
    parser.add_argument("--vocab", type=int, default=129280)
    parser.add_argument("--seed", default="slice-1")
    a = parser.parse_args()
    start = time.monotonic()
    os.makedirs(a.out, exist_ok=True)
    with open(a.config, encoding="utf-8") as f:
        config = slice_config(json.load(f), a.experts, a.draft, a.vocab)
    with open(f"{a.out}/config.json", "w", encoding="utf-8") as f:
        json.dump(config, f, indent=1)
    with gzip.open(a.tokenizer) as source, open(f"{a.out}/tokenizer.json", "wb") as target:
        shutil.copyfileobj(source, target)
    groups = {}
    for tensor in inventory(config):  # one shard for each layer, one each for embedding, head and the rest
        key = ".".join(tensor[0].split(".")[:2])
        groups.setdefault(key, []).append(tensor)
    weight_map, total = {}, 0
    for i, part in enumerate(groups.values()):
        name = f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors"
        total += write_shard(f"{a.out}/{name}", part, a.seed)
        weight_map.update({x[0]: name for x in part})
    with open(f"{a.out}/model.safetensors.index.json", "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=1)
    print(f"{len(weight_map)} tensors, {total} bytes in {len(groups)} shards, {time.monotonic() - start:.1f} s, {a.out}")


if __name__ == "__main__":
    main()
