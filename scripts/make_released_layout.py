#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The released checkpoint's layout without its data: 48 shards with real headers and sparse bodies.

    python3 scripts/make_released_layout.py OUT_DIR [--config testdata/released/config.json]

Writes config.json, model.safetensors.index.json and every shard: 96,085 tensors and 510,286,023,000 payload bytes that take
a few megabytes on disk, for the data of each file is one hole. Reading it gives zeros, which is enough for whatever works on
names, shapes and sizes. Needs nothing but Python; takes a second or two.

The inventory below is the specification's table (model.md 2) written a second time, on purpose without a look at the C++
weight table: the two check each other.
"""
import argparse
import gzip
import json
import os
import shutil
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "F8_E8M0": 1, "I8": 1}


def blocks(n):
    return -(-n // 32)


def inventory(config):
    """Yields (name, dtype, shape), layer by layer."""
    t, v = config["text_config"], config.get("vision_config")
    d, vocab, heads, hd = t["hidden_size"], t["vocab_size"], t["num_attention_heads"], t["head_dim"]
    q, groups, rank, inner = t["q_lora_rank"], t["o_groups"], t["o_lora_rank"], t["moe_intermediate_size"]
    hc = t["hc_mult"]

    def f8(name, o, i):
        return [(name + ".weight", "F8_E4M3", [o, i]), (name + ".scale", "F8_E8M0", [blocks(o), blocks(i)])]

    def f4(name, o, i):
        return [(name + ".weight", "I8", [o, i // 2]), (name + ".scale", "F8_E8M0", [o, i // 32])]

    def bf(name, *shape):
        return [(name, "BF16", list(shape))]

    def f32(name, *shape):
        return [(name, "F32", list(shape))]

    def block(p, layer, experts):
        out = bf(p + "attn_norm.weight", d) + bf(p + "ffn_norm.weight", d)
        for site in ("attn", "ffn"):
            out += f32(f"{p}hc_{site}_fn", (2 + hc) * hc, hc * d) + f32(f"{p}hc_{site}_base", (2 + hc) * hc) + f32(f"{p}hc_{site}_scale", 3)
        a = p + "attn."
        out += f32(a + "attn_sink", heads) + f8(a + "wq_a", q, d) + bf(a + "q_norm.weight", q) + f8(a + "wq_b", heads * hd, q)
        out += f8(a + "wkv", hd, d) + bf(a + "kv_norm.weight", hd) + f8(a + "wo_a", groups * rank, heads * hd // groups)
        out += f8(a + "wo_b", d, groups * rank)
        if layer in t["kv_source_layer_ids"]:
            out += bf(a + "compressor.wkv.weight", hd, d)
            if t["compress_ratios"][layer] > 1:
                out += bf(a + "compressor.wgate.weight", hd, d)
            out += bf(a + "compressor.norm.weight", hd) + bf(a + "indexer.wk.weight", t["index_head_dim"], hd)
            out += bf(a + "indexer.k_norm.weight", t["index_head_dim"])
        if layer in t["index_source_layer_ids"]:
            out += f8(a + "indexer.wq_b", t["index_n_heads"] * t["index_head_dim"], q)
            out += bf(a + "indexer.weights_proj.weight", t["index_n_heads"], d)
        f = p + "ffn."
        out += bf(f + "gate.weight", experts, d) + f32(f + "gate.bias", experts)
        if v:
            out += f32(f + "gate.bias_vl", experts)
        for e in range(experts):
            out += f4(f"{f}experts.{e}.w1", inner, d) + f4(f"{f}experts.{e}.w2", d, inner) + f4(f"{f}experts.{e}.w3", inner, d)
        return out + f8(f + "shared_experts.w1", inner, d) + f8(f + "shared_experts.w2", d, inner) + f8(f + "shared_experts.w3", inner, d)

    yield from bf("embed.weight", vocab, d)
    if v:
        yield from vision(v, d)
    columns = (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"] * t["engram_head_dim"]
    for layer in range(t["num_hidden_layers"]):
        p = f"layers.{layer}."
        yield from block(p, layer, t["n_routed_experts"])
        if layer in t["engram_layer_ids"]:
            yield from f8(p + "engram.wkv", d * (hc + 1), columns)
            yield from bf(p + "engram.q_weight", hc, d) + bf(p + "engram.k_weight", hc, d)
    yield from bf("norm.weight", d) + bf("head.weight", vocab, d)
    last = t["num_nextn_predict_layers"] - 1
    for m in range(last + 1):
        p = f"mtp.{m}."
        yield from block(p, -1, t["dspark_n_routed_experts"])
        if m == 0:
            yield from f8(p + "main_proj", d, d * len(t["dspark_target_layer_ids"])) + bf(p + "main_norm.weight", d)
        if m == last:
            r = t["dspark_markov_rank"]
            yield from bf(p + "norm.weight", d) + bf(p + "markov_head.embed.weight", vocab, r) + bf(p + "markov_head.head.weight", vocab, r)
            yield from bf(p + "confidence_head.proj.weight", 1, d + r)
    for layer, rows in zip(t["engram_layer_ids"], t["engram_num_embeddings"]):
        p, hd_e = f"layers.{layer}.engram.embed", t["engram_head_dim"]
        yield p + ".weight", "F8_E4M3", [rows, hd_e]
        yield p + ".scale", "F8_E8M0", [rows, hd_e // 32]


def vision(v, d):
    w, patch, inner = v["hidden_size"], v["patch_size"], v["intermediate_size"]

    def linear(name, o, i, bias=True):
        yield name + ".weight", "BF16", [o, i]
        if bias:
            yield name + ".bias", "BF16", [o]

    yield from linear("vision.patch_embed.proj", w, 3 * patch * patch)
    for b in range(v["num_hidden_layers"]):
        p = f"vision.blocks.{b}."
        yield p + "norm1.weight", "BF16", [w]
        yield from linear(p + "attn.wqkv", 3 * w, w)
        yield from linear(p + "attn.wo", w, w)
        yield p + "norm2.weight", "BF16", [w]
        yield from linear(p + "mlp.w1", 2 * inner, w, False)
        yield from linear(p + "mlp.w2", w, inner, False)
    yield "vision.norm.weight", "BF16", [w]
    yield from linear("aligner.w1", d, w * v["downsample_ratio"] ** 2)
    yield from linear("aligner.w2", d, d)
    for name in ("image_start", "image_end", "image_newline"):
        yield name, "BF16", [d]


def tensor_bytes(dtype, shape):
    n = SIZE[dtype]
    for s in shape:
        n *= s
    return n


def split(tensors, num_shards):
    """Body tensors over the first shards by bytes; each Engram table in a shard of its own at the end."""
    tables = [x for x in tensors if ".engram.embed." in x[0]]
    body = [x for x in tensors if ".engram.embed." not in x[0]]
    num_body = num_shards - len(tables) // 2
    total = sum(tensor_bytes(*x[1:]) for x in body)
    parts, current, done = [], [], 0
    for x in body:
        current.append(x)
        done += tensor_bytes(*x[1:])
        if len(parts) < num_body - 1 and done * num_body >= total * (len(parts) + 1):
            parts.append(current)
            current = []
    return parts + [current] + [tables[i:i + 2] for i in range(0, len(tables), 2)]


def write_shard(path, tensors):
    """Header as the format's usual writer lays it out (wider types first), body as a hole."""
    order = sorted(tensors, key=lambda x: (-SIZE[x[1]], x[0]))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, dtype, shape in order:
        n = tensor_bytes(dtype, shape)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    return at


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--config", default=f"{HERE}/../testdata/released/config.json")
    parser.add_argument("--shards", type=int, default=48)
    parser.add_argument("--tokenizer", default=f"{HERE}/../testdata/codec/tokenizer_v41.json.gz")
    a = parser.parse_args()
    os.makedirs(a.out, exist_ok=True)
    with open(a.config, encoding="utf-8") as f:
        config = json.load(f)
    shutil.copyfile(a.config, f"{a.out}/config.json")
    with gzip.open(a.tokenizer) as source, open(f"{a.out}/tokenizer.json", "wb") as target:
        shutil.copyfileobj(source, target)
    tensors = list(inventory(config))
    weight_map, total = {}, 0
    parts = split(tensors, a.shards)
    for i, part in enumerate(parts):
        name = f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors"
        total += write_shard(f"{a.out}/{name}", part)
        weight_map.update({x[0]: name for x in part})
    with open(f"{a.out}/model.safetensors.index.json", "w", encoding="utf-8") as f:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, f, indent=2)
    print(f"{len(tensors)} tensors, {total} bytes in {len(parts)} shards, {a.out}")


if __name__ == "__main__":
    main()
