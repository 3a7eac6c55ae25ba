#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# Provenance: delivered with the golden data of the specification, unchanged but for this note; testdata/model_a was made by it.
"""Deterministic random checkpoints in the DeepSeek-V4.1 on-disk layout.  Needs NumPy only.

    python3 make_checkpoint.py SPEC.json OUT_DIR            write a checkpoint folder
    python3 make_checkpoint.py SPEC.json --hash             print the sha256 of every tensor
    python3 make_checkpoint.py SPEC.json OUT_DIR --check F  write, then compare with a saved hash list

SPEC.json holds {"name", "seed", "shards", "hf_config", optional "gains"}.  The folder receives
config.json (nested HF form), inference/config.json (flat form), tokenizer.json, tokenizer_config.json,
model-0000i-of-0000n.safetensors and model.safetensors.index.json.

How a tensor gets its bytes: the 128-bit seed is the first 16 bytes (little endian) of
sha256("<spec seed>/<tensor name>"); that integer seeds NumPy's PCG64, whose raw 64-bit outputs, taken
as little-endian bytes, select entries of small quantile tables (a normal distribution cut into 256 or
65,536 equal-probability cells).  So each tensor is independent of all others, of the NumPy version
and of the order of generation.  FP8 and FP4 codes are drawn directly, never by quantising a matrix;
their block exponents carry a random -1/0/+1 so that a wrong scale index shows at once.
"""
import hashlib
import json
import math
import os
import re
import struct
import sys
import unicodedata
from statistics import NormalDist

import numpy as np

# ------------------------------------------------------------------ small-float codecs


def e4m3_table():
    """256 float32 values of FP8 E4M3 (finite-only variant: 0x7F and 0xFF are NaN, no infinities)."""
    out = np.zeros(256, np.float32)
    for c in range(256):
        s, e, m = c >> 7, (c >> 3) & 15, c & 7
        if e == 15 and m == 7:
            v = math.nan
        elif e == 0:
            v = m * 2.0 ** -9
        else:
            v = (1 + m / 8) * 2.0 ** (e - 7)
        out[c] = -v if s else v
    return out


E4M3 = e4m3_table()
E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def e4m3_encode(x):
    """float -> E4M3 code, nearest, ties to the even code, saturating at 448."""
    x = np.asarray(x, np.float64)
    mag = E4M3[:127].astype(np.float64)              # ascending, codes 0..126
    a = np.minimum(np.abs(x), 448.0)
    hi = np.clip(np.searchsorted(mag, a, side="left"), 0, 126)
    lo = np.maximum(hi - 1, 0)
    dl, dh = a - mag[lo], mag[hi] - a
    pick_lo = (dl < dh) | ((dl == dh) & (lo % 2 == 0))
    code = np.where(pick_lo, lo, hi).astype(np.uint8)
    return code | (np.signbit(x).astype(np.uint8) << 7)


def e2m1_encode(x):
    """float -> E2M1 code, nearest, ties to the even code, saturating at 6."""
    x = np.asarray(x, np.float64)
    mag = E2M1[:8].astype(np.float64)
    a = np.minimum(np.abs(x), 6.0)
    hi = np.clip(np.searchsorted(mag, a, side="left"), 0, 7)
    lo = np.maximum(hi - 1, 0)
    dl, dh = a - mag[lo], mag[hi] - a
    pick_lo = (dl < dh) | ((dl == dh) & (lo % 2 == 0))
    code = np.where(pick_lo, lo, hi).astype(np.uint8)
    return code | (np.signbit(x).astype(np.uint8) << 3)


def bf16_bits(x):
    """float32 array -> uint16 bfloat16 bits, round to nearest even (finite input)."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def bf16_to_f32(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32)


# ------------------------------------------------------------------ deterministic bytes

_Q = {}


def quantiles(n):
    if n not in _Q:
        d = NormalDist()
        half = [d.inv_cdf((i + .5) / n) for i in range(n // 2, n)]
        _Q[n] = np.array([-v for v in reversed(half)] + half, np.float64)
    return _Q[n]


def raw_bytes(seed, name, nbytes):
    key = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], "little")
    words = np.random.PCG64(key).random_raw((nbytes + 7) // 8)
    return np.asarray(words, "<u8").view(np.uint8)[:nbytes]


def normal_f32(seed, name, shape, mean, std):
    n = int(np.prod(shape))
    idx = raw_bytes(seed, name, 2 * n).view("<u2")
    z = quantiles(65536).astype(np.float32)
    return (np.float32(mean) + np.float32(std) * z[idx]).reshape(shape)


JITTER_RMS = math.sqrt((.25 + 1 + 4) / 3)


def jitter(seed, name, shape):
    n = int(np.prod(shape))
    b = raw_bytes(seed, name, n)
    return ((b.astype(np.uint16) * 3) >> 8).astype(np.int16).reshape(shape) - 1   # -1, 0, +1


def fp8_weight(seed, name, shape, std, scale_shape):
    """E4M3 codes plus E8M0 exponents; overall standard deviation close to `std`."""
    want = std / JITTER_RMS
    e = math.floor(math.log2(want / 70))
    code = e4m3_encode(quantiles(256) * (want / 2.0 ** e))
    code[126], code[127], code[128], code[129] = 0x01, 0x80, 0x00, 0x87   # tiny, -0, +0, subnormal
    code[0], code[255] = 0xFE, 0x7E                                       # the extremes, -448 and 448
    w = code[raw_bytes(seed, name + ".weight", int(np.prod(shape)))].reshape(shape)
    s = (jitter(seed, name + ".scale", scale_shape) + (e + 127)).astype(np.uint8)
    return w, s


def fp4_weight(seed, name, rows, cols, std):
    """Packed E2M1 [rows, cols/2] (even column in the low nibble) plus E8M0 [rows, cols/32]."""
    code = e2m1_encode(quantiles(256) * 2.2).astype(np.uint8)
    pair = (code[np.arange(65536) & 255] | (code[np.arange(65536) >> 8] << 4)).astype(np.uint8)
    n = rows * cols // 2
    w = pair[raw_bytes(seed, name + ".weight", 2 * n).view("<u2")].reshape(rows, cols // 2)
    e = round(math.log2(std / JITTER_RMS / 2.2))
    s = (jitter(seed, name + ".scale", (rows, cols // 32)) + (e + 127)).astype(np.uint8)
    return w, s


# ------------------------------------------------------------------ tensor list

NORM_MEAN = {"attn_norm": .025, "ffn_norm": .2, "q_norm": .97, "kv_norm": .4, "compressor.norm": .6, "k_norm": .5}
GAIN = {"wq_a": 1.6, "wq_b": 3.0, "attn.wkv": 1.8, "wo_a": 1.6, "wo_b": 1.9, "gate": 2.9, "w1": 1.5, "w3": 1.5,
        "w2": 1.05, "compressor.wkv": 1.8, "wgate": 40.0, "wk": 1.0, "weights_proj": 8.0, "engram.wkv": .25,
        "main_proj": 1.0, "head": 3.0, "markov_head.head": 3.0, "confidence_head.proj": 1.0,
        "patch_embed.proj": 1.0, "wqkv": 1.5, "vision.wo": .5, "vision.w1": 1.0, "vision.w2": .7,
        "aligner.w1": 1.0, "aligner.w2": .25, "hc_fn": 1.0, "embed_std": .12}


def lookup(table, name, default=1.0):
    best = None
    for k in table:
        if (name == k or name.endswith("." + k)) and (best is None or len(k) > len(best)):
            best = k
    return default if best is None else table[best]


def plan(spec):
    """Ordered list of (name, kind, shape, info).  Kinds: f8 (32x32 tiles), f4, rows8 (Engram), bf, f32."""
    hf = spec["hf_config"]
    t, v = hf["text_config"], hf.get("vision_config")
    gains = dict(GAIN, **spec.get("gains", {}))
    D, V, H, hd = t["hidden_size"], t["vocab_size"], t["num_attention_heads"], t["head_dim"]
    ql, og, ol, I = t["q_lora_rank"], t["o_groups"], t["o_lora_rank"], t["moe_intermediate_size"]
    hc, nl, nm = t["hc_mult"], t["num_hidden_layers"], t["num_nextn_predict_layers"]
    ih, idim = t["index_n_heads"], t["index_head_dim"]
    kv_src, ix_src = t["kv_source_layer_ids"], t["index_source_layer_ids"]
    out = []

    def bf(name, shape, std, mean=0.0):
        out.append((name, "bf", tuple(shape), (mean, std)))

    def f32(name, shape, std, mean=0.0):
        out.append((name, "f32", tuple(shape), (mean, std)))

    def norm(name, n):
        m = lookup(NORM_MEAN, name)
        bf(name + ".weight", [n], .1 * m, m)

    def f8(name, o, i, key=None):
        out.append((name, "f8", (o, i), lookup(gains, key or name) * i ** -.5))

    def f4(name, o, i):
        out.append((name, "f4", (o, i), lookup(gains, name) * i ** -.5))

    def bfl(name, o, i, key=None):
        bf(name + ".weight", [o, i], lookup(gains, key or name) * i ** -.5)

    def block(p, layer, experts, ratio):
        norm(p + "attn_norm", D)
        norm(p + "ffn_norm", D)
        for site in ("attn", "ffn"):
            f32(p + f"hc_{site}_fn", [(2 + hc) * hc, hc * D], gains["hc_fn"] * (hc * D) ** -.5)
            f32(p + f"hc_{site}_base", [(2 + hc) * hc], .5)
            f32(p + f"hc_{site}_scale", [3], .2, .7)
        a = p + "attn."
        f32(a + "attn_sink", [H], .5)
        f8(a + "wq_a", ql, D)
        norm(a + "q_norm", ql)
        f8(a + "wq_b", H * hd, ql)
        f8(a + "wkv", hd, D)
        norm(a + "kv_norm", hd)
        f8(a + "wo_a", og * ol, H * hd // og)
        f8(a + "wo_b", D, og * ol)
        if layer in kv_src:
            bfl(a + "compressor.wkv", hd, D)
            if ratio > 1:
                bfl(a + "compressor.wgate", hd, D)
            norm(a + "compressor.norm", hd)
            bfl(a + "indexer.wk", idim, hd)
            norm(a + "indexer.k_norm", idim)
        if layer in ix_src:
            f8(a + "indexer.wq_b", ih * idim, ql)
            bfl(a + "indexer.weights_proj", ih, D)
        f = p + "ffn."
        bfl(f + "gate", experts, D)
        f32(f + "gate.bias", [experts], .1)
        if v:
            f32(f + "gate.bias_vl", [experts], .3)
        for e in range(experts):
            f4(f + f"experts.{e}.w1", I, D)
            f4(f + f"experts.{e}.w2", D, I)
            f4(f + f"experts.{e}.w3", I, D)
        f8(f + "shared_experts.w1", I, D)
        f8(f + "shared_experts.w2", D, I)
        f8(f + "shared_experts.w3", I, D)

    bf("embed.weight", [V, D], gains["embed_std"])
    cr = t["compress_ratios"]
    for l in range(nl):
        block(f"layers.{l}.", l, t["n_routed_experts"], cr[l])
        if l in t["engram_layer_ids"]:
            p = f"layers.{l}.engram."
            cols = (t["engram_max_ngram_size"] - 1) * t["engram_n_heads"]
            f8(p + "wkv", D * (hc + 1), cols * t["engram_head_dim"], "engram.wkv")
            bf(p + "q_weight", [hc, D], .3, 1.0)
            bf(p + "k_weight", [hc, D], .3, 1.0)
    norm("norm", D)
    bfl("head", V, D)
    de = t["dspark_n_routed_experts"] or t["n_routed_experts"]
    for m in range(nm):
        p = f"mtp.{m}."
        block(p, nl + m + 10 ** 6, de, 0)
        if m == 0:
            f8(p + "main_proj", D, D * len(t["dspark_target_layer_ids"]))
            norm(p + "main_norm", D)
        if m == nm - 1:
            r = t["dspark_markov_rank"]
            norm(p + "norm", D)
            bf(p + "markov_head.embed.weight", [V, r], .5)
            bfl(p + "markov_head.head", V, r)
            bfl(p + "confidence_head.proj", 1, D + r)
    if v:
        d, p = v["hidden_size"], v["patch_size"]

        def lin(name, o, i, key, bias=True):
            bfl(name, o, i, key)
            if bias:
                bf(name + ".bias", [o], .1)

        lin("vision.patch_embed.proj", d, 3 * p * p, "patch_embed.proj")
        for b in range(v["num_hidden_layers"]):
            q = f"vision.blocks.{b}."
            bf(q + "norm1.weight", [d], .1, 1.0)
            lin(q + "attn.wqkv", 3 * d, d, "wqkv")
            lin(q + "attn.wo", d, d, "vision.wo")
            bf(q + "norm2.weight", [d], .1, 1.0)
            lin(q + "mlp.w1", 2 * v["intermediate_size"], d, "vision.w1", False)
            lin(q + "mlp.w2", d, v["intermediate_size"], "vision.w2", False)
        bf("vision.norm.weight", [d], .1, 1.0)
        lin("aligner.w1", D, d * v["downsample_ratio"] ** 2, "aligner.w1")
        lin("aligner.w2", D, D, "aligner.w2")
        for k in ("image_start", "image_end", "image_newline"):
            bf(k, [D], gains["embed_std"])
    for l, rows in zip(t["engram_layer_ids"], t["engram_num_embeddings"]):
        out.append((f"layers.{l}.engram.embed", "rows8", (rows, t["engram_head_dim"]), 1.0))
    return out


def tensors(spec):
    """Yields (name, safetensors dtype, array) in file order."""
    seed = spec["seed"]
    for name, kind, shape, info in plan(spec):
        if kind == "bf":
            yield name, "BF16", bf16_bits(normal_f32(seed, name, shape, *info))
        elif kind == "f32":
            yield name, "F32", normal_f32(seed, name, shape, *info)
        elif kind == "f8":
            w, s = fp8_weight(seed, name, shape, info, (-(-shape[0] // 32), -(-shape[1] // 32)))
            yield name + ".weight", "F8_E4M3", w
            yield name + ".scale", "F8_E8M0", s
        elif kind == "rows8":
            w, s = fp8_weight(seed, name, shape, info, (shape[0], shape[1] // 32))
            yield name + ".weight", "F8_E4M3", w
            yield name + ".scale", "F8_E8M0", s
        else:
            w, s = fp4_weight(seed, name, shape[0], shape[1], info)
            yield name + ".weight", "I8", w
            yield name + ".scale", "F8_E8M0", s


# ------------------------------------------------------------------ safetensors

NP = {"BF16": "<u2", "F32": "<f4", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "i1", "U8": "u1", "I32": "<i4", "I64": "<i8"}


def save_safetensors(path, items, meta=None):
    """items: list of (name, dtype tag, array)."""
    head, pos = {}, 0
    if meta:
        head["__metadata__"] = meta
    for name, tag, a in items:
        head[name] = {"dtype": tag, "shape": list(a.shape), "data_offsets": [pos, pos + a.nbytes]}
        pos += a.nbytes
    h = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)))
        f.write(h)
        for _, _, a in items:
            f.write(np.ascontiguousarray(a).tobytes())


def load_safetensors(path):
    """-> {name: (dtype tag, array)}; BF16 comes back as uint16 bits, FP8 and E8M0 as uint8."""
    data = np.fromfile(path, np.uint8)
    n = struct.unpack("<Q", data[:8].tobytes())[0]
    head = json.loads(data[8:8 + n].tobytes())
    out = {}
    for k, d in head.items():
        if k != "__metadata__":
            a, b = d["data_offsets"]
            out[k] = (d["dtype"], data[8 + n + a:8 + n + b].view(NP[d["dtype"]]).reshape(d["shape"]))
    return out


# ------------------------------------------------------------------ tokenizer

WORDS = """the of and to in is that for it was on are as with his they at be this have from or one had by word but not
what all were we when your can said there use an each which she do how their if will up other about out many then
token cache layer expert model weight image query state block index value return while null true false int void
straße über naïve façade niño ÉTÉ año größe Москва мир привет 你好 世界 中文 日本 テスト データ""".split()


def byte_chars():
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, n = {}, 0
    for b in range(256):
        if b in keep:
            table[b] = chr(b)
        else:
            table[b] = chr(256 + n)
            n += 1
    return table


SPECIAL_NAMES = ["<｜User｜>", "<｜Assistant｜>", "<think>", "</think>", "｜DSML｜", "<｜latest_reminder｜>",
                 "<｜action｜>", "<｜System｜>"]


def build_tokenizer(spec):
    """A small byte-level BPE file with the pre-tokenizer of the released family.  Ids 0..2 are BOS, EOS, pad; then
    256 byte tokens; then merged tokens; then specials (image and noise ids as the config says)."""
    hf = spec["hf_config"]
    V = hf["text_config"]["vocab_size"]
    img, noise = hf["image_token_id"], hf["text_config"]["dspark_noise_token_id"]
    n_special = 12
    base_end = V - n_special
    bc = byte_chars()
    vocab = {bc[b]: 3 + i for i, b in enumerate(range(256))}
    merges = []

    def add(text):
        """Extend the vocabulary so that `text` becomes one token, by left-to-right pair merges."""
        sym = [bc[b] for b in text.encode()]
        left = sym[0]
        for s in sym[1:]:
            new = left + s
            if new not in vocab:
                if len(vocab) + 3 >= base_end:
                    return False
                merges.append(f"{left} {s}")
                vocab[new] = 3 + len(vocab)
            left = new
        return True

    for w in ("  ", "\n\n", "    ", "\r\n", "\t\t", ".\n"):
        add(w)
    for w in WORDS:
        for x in (w, " " + w, w.capitalize(), " " + w.capitalize(), w.upper()):
            add(x)
    cons, vow = "bcdfghjklmnpqrstvwxz", "aeiouy"
    full = False
    for c in cons:                       # syllables fill what is left
        for a in vow:
            for d in cons:
                for x in (c + a + d, " " + c + a + d, (c + a + d).capitalize()):
                    if not add(x):
                        full = True
                if full:
                    break
            if full:
                break
        if full:
            break
    assert len(vocab) + 3 == base_end, (len(vocab) + 3, base_end)
    added = [(0, "<｜begin▁of▁sentence｜>", True), (1, "<｜end▁of▁sentence｜>", True), (2, "<｜▁pad▁｜>", True)]
    names = iter(SPECIAL_NAMES)
    for i in range(base_end, V):
        if i == img:
            added.append((i, "<｜deepseek_image｜>", True))
        elif i == noise:
            added.append((i, "<｜draft▁noise｜>", True))
        else:
            nm = next(names, None)
            added.append((i, nm or f"<｜place▁holder▁no▁{i}｜>", nm is None))
    vocab_all = {c: i for i, c, _ in added[:3]}
    vocab_all.update(vocab)
    split = lambda p: {"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
    tok = {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": s} for i, c, s in added],
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            split(r"\p{N}{1,3}"),
            split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
            split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                  " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"),
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": vocab_all, "merges": merges}}
    return tok


def token_map(tok):
    """Compressed ids for the Engram hash, in order of first appearance of the normal form."""
    back = {c: b for b, c in byte_chars().items()}
    special = {a["id"]: a["content"] for a in tok["added_tokens"]}
    piece = {i: s for s, i in tok["model"]["vocab"].items()}
    ws = {chr(c) for c in [9, 10, 11, 12, 13, 32, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029, 0x202f,
                           0x205f, 0x3000]}
    seen, out = {}, []
    for i in range(max(max(special), max(piece)) + 1):
        text = special[i] if i in special else bytes(back[c] for c in piece[i]).decode("utf-8", "replace")
        if "\ufffd" in text:
            key = special.get(i) or piece[i]
        else:
            s = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
            s = "".join(c for c in s if not unicodedata.category(c).startswith("M"))
            s = re.sub(r"[ \t\r\n]+", " ", "".join(c.lower() for c in s))
            if s != " ":
                a, b = 0, len(s)
                while a < b and s[a] in ws:
                    a += 1
                while b > a and s[b - 1] in ws:
                    b -= 1
                s = s[a:b]
            key = s or text
        out.append(seen.setdefault(key, len(seen)))
    return out


# ------------------------------------------------------------------ configuration files

FLAT = {"vocab_size": "vocab_size", "dim": "hidden_size", "moe_inter_dim": "moe_intermediate_size",
        "n_layers": "num_hidden_layers", "n_mtp_layers": "num_nextn_predict_layers",
        "dspark_block_size": "dspark_block_size", "dspark_noise_token_id": "dspark_noise_token_id",
        "dspark_target_layer_ids": "dspark_target_layer_ids", "dspark_markov_rank": "dspark_markov_rank",
        "dspark_n_routed_experts": "dspark_n_routed_experts",
        "dspark_n_activated_experts": "dspark_num_experts_per_tok", "n_heads": "num_attention_heads",
        "n_routed_experts": "n_routed_experts", "n_shared_experts": "n_shared_experts",
        "n_activated_experts": "num_experts_per_tok", "score_func": "scoring_func",
        "route_scale": "routed_scaling_factor", "swiglu_limit": "swiglu_limit", "q_lora_rank": "q_lora_rank",
        "head_dim": "head_dim", "rope_head_dim": "qk_rope_head_dim", "norm_eps": "rms_norm_eps",
        "o_groups": "o_groups", "o_lora_rank": "o_lora_rank", "window_size": "sliding_window",
        "kv_source_layers": "kv_source_layer_ids", "index_source_layers": "index_source_layer_ids",
        "rope_theta": "rope_theta", "index_n_heads": "index_n_heads", "index_head_dim": "index_head_dim",
        "index_topk": "index_topk", "candidate_source_layer": "candidate_source_layer_id",
        "candidate_topk_blocks": "candidate_topk_blocks", "candidate_block_size": "candidate_block_size",
        "hc_mult": "hc_mult", "hc_sinkhorn_iters": "hc_sinkhorn_iters", "hc_eps": "hc_eps",
        "engram_layer_ids": "engram_layer_ids", "engram_vocab_size": "engram_vocab_size",
        "engram_num_embeddings": "engram_num_embeddings", "engram_max_ngram_size": "engram_max_ngram_size",
        "engram_pad_id": "engram_pad_token_id", "engram_compressed_vocab_size": "engram_compressed_vocab_size",
        "engram_n_heads": "engram_n_heads", "engram_head_dim": "engram_head_dim",
        "compress_rope_theta": "compress_rope_theta", "compress_ratios": "compress_ratios"}


def flat_config(hf):
    t, v = hf["text_config"], hf.get("vision_config")
    f = {k: t[n] for k, n in FLAT.items()}
    r = t["rope_scaling"]
    f.update(original_seq_len=r["original_max_position_embeddings"], rope_factor=r["factor"],
             beta_fast=r["beta_fast"], beta_slow=r["beta_slow"], dtype="fp8",
             expert_dtype=hf["quantization_config"]["expert_dtype"], image_token_id=hf["image_token_id"],
             norm_topk_prob=t["norm_topk_prob"])
    if v:
        f.update(vision_n_layers=v["num_hidden_layers"], vision_dim=v["hidden_size"],
                 vision_n_heads=v["num_attention_heads"], vision_inter_dim=v["intermediate_size"],
                 vision_patch_size=v["patch_size"], vision_rope_theta=v["rope_theta"],
                 vision_downsample_ratio=v["downsample_ratio"], vision_max_n_token=v["max_image_tokens"],
                 vision_min_pixels=v["min_pixels"], vision_max_wh_ratio=v["max_wh_ratio"])
    return f


def write_json(path, obj, indent=1):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        json.dump(obj, f, indent=indent, ensure_ascii=False)
        f.write("\n")


def load_spec(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def hashes(spec):
    return {n: hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest() for n, _, a in tensors(spec)}


def write_checkpoint(spec, out):
    hf = spec["hf_config"]
    tok = build_tokenizer(spec)
    n_map = len(set(token_map(tok)))
    want = hf["text_config"]["engram_compressed_vocab_size"]
    assert n_map == want, f"engram_compressed_vocab_size must be {n_map}, the spec says {want}"
    write_json(f"{out}/config.json", hf, 2)
    write_json(f"{out}/inference/config.json", flat_config(hf), 4)
    write_json(f"{out}/tokenizer.json", tok, None)
    write_json(f"{out}/tokenizer_config.json", {
        "add_bos_token": False, "add_eos_token": False, "bos_token": "<｜begin▁of▁sentence｜>",
        "eos_token": "<｜end▁of▁sentence｜>", "pad_token": "<｜▁pad▁｜>", "clean_up_tokenization_spaces": False,
        "model_max_length": hf["text_config"]["max_position_embeddings"], "tokenizer_class": "PreTrainedTokenizerFast"})
    items = list(tensors(spec))
    n = spec["shards"]
    eng = [x for x in items if ".engram.embed." in x[0]]
    body = [x for x in items if ".engram.embed." not in x[0]]
    groups = [eng[i:i + 2] for i in range(0, len(eng), 2)]      # like the release: one table per last shard
    n_body = n - len(groups)
    total = sum(x[2].nbytes for x in body)
    parts, cur, acc = [], [], 0
    for x in body:
        cur.append(x)
        acc += x[2].nbytes
        if len(parts) < n_body - 1 and acc * n_body >= total * (len(parts) + 1):
            parts.append(cur)
            cur = []
    parts.append(cur)
    parts += groups
    weight_map, size = {}, 0
    for i, part in enumerate(parts):
        fn = f"model-{i + 1:05d}-of-{len(parts):05d}.safetensors"
        save_safetensors(f"{out}/{fn}", part, {"format": "pt"})
        for name, _, a in part:
            weight_map[name] = fn
            size += a.nbytes
    write_json(f"{out}/model.safetensors.index.json",
               {"metadata": {"total_size": size}, "weight_map": dict(sorted(weight_map.items()))}, 0)


def main(argv):
    if len(argv) < 3:
        print(__doc__)
        return 2
    spec = load_spec(argv[1])
    if argv[2] == "--hash":
        for k, h in hashes(spec).items():
            print(h, k)
        return 0
    write_checkpoint(spec, argv[2])
    if len(argv) > 4 and argv[3] == "--check":
        want = dict(reversed(l.split()) for l in open(argv[4]) if l.strip())
        got = hashes(spec)
        bad = [k for k in want if got.get(k) != want[k]] + [k for k in got if k not in want]
        print("hash check:", "ok" if not bad else f"{len(bad)} differ, first {bad[0]}")
        return 1 if bad else 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
