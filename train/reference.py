"""The forward pass of a checkpoint with the reference's rounding points, for a batch of padded sequences.

Slow and plain: real top-k selection with the lowest index winning ties, entries of the attention core in blocks of 64
with an online softmax. It judges the fast training model, scores prompts and makes the golden values.
"""
import json
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F

from . import checkpoint, config as configuration, engram, quantise

ATTENTION_BLOCK = 64
VISION_EPS = 1e-6
MISSING = -1


def bf(value):
    return value.bfloat16()


def load_weights(folder, device="cpu"):
    """Dequantised weights of a checkpoint folder by released name, without the suffix of quantised ones."""
    raw, weights = checkpoint.read_tensors(folder), {}
    e4m3 = lambda array: torch.from_numpy(array.copy()).view(torch.float8_e4m3fn).float()
    power = lambda array: torch.exp2(torch.from_numpy(array.copy()).float() - 127)
    for name, (tag, array) in raw.items():
        if tag == "BF16":
            weights[name] = torch.from_numpy((array.astype(np.uint32) << 16).view(np.float32).copy()).bfloat16()
        elif tag == "F32":
            weights[name] = torch.from_numpy(array.copy())
        elif tag == "F8_E4M3":
            values, scale = e4m3(array), power(raw[name[:-len("weight")] + "scale"][1])
            if scale.shape[0] != values.shape[0]:
                scale = scale.repeat_interleave(32, 0)[:values.shape[0]]
            weights[name[:-len(".weight")]] = bf(values * scale.repeat_interleave(32, 1)[:, :values.shape[1]])
        elif tag == "I8":
            scale = power(raw[name[:-len("weight")] + "scale"][1])
            codes = quantise.unpack_e2m1(torch.from_numpy(array.copy()))
            weights[name[:-len(".weight")]] = bf(codes * scale.repeat_interleave(32, 1))
    return {name: value.to(device) for name, value in weights.items()}


def unquantised_weights(values, biases, model_config, device="cpu"):
    """The same names from the trained parameters, rounded to bfloat16 only."""
    from .parameters import released_tensors
    return {name: (tensor.float() if kind == "f32" else bf(tensor)).to(device)
            for name, kind, tensor in released_tensors(values, biases, model_config)}


def linear(x, weight):
    """bf16 inputs, fp32 accumulation, bf16 result."""
    if x.is_cuda:
        return bf(x) @ weight.t()
    return bf(x.float() @ weight.float().t())


def linear32(x, weight):
    return x.float() @ weight.float().t()


def rms_norm(x, weight, eps):
    x = x.float()
    return bf(weight.float() * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)))


def rotate(x, cos, sin, inverse=False):
    """Interleaved pairs of the last channels; x [B, N, (heads,) d], tables [N, pairs]."""
    size = 2 * cos.shape[-1]
    if x.dim() == 4:
        cos, sin = cos[:, None], sin[:, None]
    if inverse:
        sin = -sin
    even, odd = x[..., -size:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((x[..., :-size], turned.to(x.dtype)), -1)


def sinkhorn(logits, iterations, eps):
    mix = torch.softmax(logits, -1) + eps
    mix = mix / (mix.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        mix = mix / (mix.sum(-1, keepdim=True) + eps)
        mix = mix / (mix.sum(-2, keepdim=True) + eps)
    return mix


def swiglu(gate, up, limit):
    gate, up = gate.float(), up.float()
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return F.silu(gate) * up


def attention_core(query, entries, listed, sink, scale, round_weights=True):
    """query [B, n, heads, d]; entries [B, E, d]; listed [B, n, L] indices into entries or MISSING -> bf16 like query.

    Without `round_weights` the probabilities stay in fp32, as in most fast kernels.
    """
    batch, rows, heads, _ = query.shape
    top = query.new_full((batch, rows, heads), -1e30, dtype=torch.float32)
    total = torch.zeros_like(top)
    out = torch.zeros(query.shape, dtype=torch.float32, device=query.device)
    batch_index = torch.arange(batch, device=query.device)[:, None, None]
    for start in range(0, listed.shape[-1], ATTENTION_BLOCK):
        index = listed[:, :, start:start + ATTENTION_BLOCK]
        there = index >= 0
        chosen = entries[batch_index, index.clamp(min=0)] * there[..., None]
        scores = torch.einsum("bnhd,bned->bnhe", query.float(), chosen.float()) * scale
        scores = scores.masked_fill(~there[:, :, None], float("-inf"))
        new_top = torch.maximum(top, scores.amax(-1))
        weights = torch.exp(scores - new_top[..., None])
        shrink = torch.exp(top - new_top)
        total = total * shrink + weights.sum(-1)
        out = out * shrink[..., None] + torch.einsum("bnhe,bned->bnhd", bf(weights).float() if round_weights else weights, chosen.float())
        top = new_top
    total = total + torch.exp(sink.float() - top)
    return bf(out / total[..., None])


@dataclass
class Pass:
    """What one forward pass carries from layer to layer, and what it leaves for drafts and checks."""
    positions: torch.Tensor
    is_image: torch.Tensor
    hash_rows: torch.Tensor
    compressed: torch.Tensor = None
    index_keys: torch.Tensor = None
    selected: torch.Tensor = None
    candidates: torch.Tensor = None
    features: list = field(default_factory=list)
    trace: dict = None

    def note(self, name, value):
        if self.trace is not None:
            self.trace[name] = value


class Reference:
    def __init__(self, weights, model_config, token_map, quantised=True):
        self.weights, self.config, self.quantised = weights, model_config, quantised
        self.round_weights = True
        self.token_map = np.asarray(token_map)
        self.device = weights["embed.weight"].device
        length = model_config.max_position_embeddings
        positions = torch.arange(length, dtype=torch.float32, device=self.device)
        self.tables = {}
        for compressed in (False, True):
            angle = positions[:, None] * torch.tensor(model_config.rope_frequencies(compressed), device=self.device)
            self.tables[compressed] = (angle.cos(), angle.sin())

    @classmethod
    def from_folder(cls, folder, device="cpu"):
        with open(f"{folder}/config.json", encoding="utf-8") as file:
            model_config = configuration.from_released(json.load(file))
        with open(f"{folder}/tokenizer.json", encoding="utf-8") as file:
            token_map = engram.token_map(json.load(file))
        return cls(load_weights(folder, device), model_config, token_map)

    # ------------------------------------------------------------ small pieces

    def activation(self, x):
        return quantise.activation_fp8(x) if self.quantised else x

    def rope(self, compressed, positions):
        cos, sin = self.tables[compressed]
        return cos[positions], sin[positions]

    def norm(self, x, name):
        return rms_norm(x, self.weights[name + ".weight"], self.config.rms_norm_eps)

    def mix(self, streams, path):
        """-> pre, post, comb of one sublayer"""
        c = self.config
        x = streams.float().flatten(-2)
        scale, base = self.weights[path + "_scale"], self.weights[path + "_base"]
        m = linear32(x, self.weights[path + "_fn"]) * torch.rsqrt(x.square().mean(-1, keepdim=True) + c.rms_norm_eps)
        n = c.hc_mult
        pre = torch.sigmoid(m[..., :n] * scale[0] + base[:n]) + c.hc_eps
        post = 2 * torch.sigmoid(m[..., n:2 * n] * scale[1] + base[n:2 * n])
        comb = sinkhorn((m[..., 2 * n:] * scale[2] + base[2 * n:]).unflatten(-1, (n, n)), c.hc_sinkhorn_iters, c.hc_eps)
        return pre, post, comb

    @staticmethod
    def collapse(pre, streams):
        return bf((pre[..., None] * streams.float()).sum(-2))

    @staticmethod
    def spread(post, comb, y, streams):
        return bf(post[..., None] * y.float()[..., None, :] + torch.einsum("...ij,...id->...jd", comb, streams.float()))

    # ------------------------------------------------------------ attention

    def queries(self, a, path, cos, sin):
        w, c = self.weights, self.config
        qr = self.norm(linear(self.activation(a), w[path + "wq_a"]), path + "q_norm")
        q = linear(self.activation(qr), w[path + "wq_b"]).unflatten(-1, (c.num_attention_heads, c.head_dim))
        return qr, rotate(q, cos, sin)

    def window_kv(self, a, path, cos, sin):
        kv = self.norm(linear(self.activation(a), self.weights[path + "wkv"]), path + "kv_norm")
        kv = rotate(kv, cos, sin)
        return quantise.activation_fp8(kv) if self.quantised else kv

    def project_out(self, attended, path, cos, sin):
        c, w = self.config, self.weights
        o = rotate(attended, cos, sin, inverse=True).flatten(-2)
        groups = o.unflatten(-1, (c.o_groups, -1))
        parts = w[path + "wo_a"].unflatten(0, (c.o_groups, c.o_lora_rank))
        z = torch.cat([linear(groups[..., g, :], parts[g]) for g in range(c.o_groups)], -1)
        return linear(self.activation(z), w[path + "wo_b"])

    def compress(self, a, layer, path, state):
        """Fills the compressed cache and the index keys of a source layer."""
        c, w = self.config, self.weights
        ratio = c.compress_ratios[layer]
        if ratio == 1:
            pooled = linear(a, w[path + "compressor.wkv.weight"])
        else:
            length = a.shape[1] // ratio * ratio
            rows = a[:, :length].unflatten(1, (-1, ratio))
            keys = linear32(rows, w[path + "compressor.wkv.weight"])
            weights = torch.softmax(linear32(rows, w[path + "compressor.wgate.weight"]), 2)
            pooled = bf((weights * keys).sum(2))
        latent = self.norm(pooled, path + "compressor.norm")
        cos, sin = self.rope(True, state.positions[:latent.shape[1] * ratio:ratio])
        keys = rotate(self.norm(linear(latent, w[path + "indexer.wk.weight"]), path + "indexer.k_norm"), cos, sin)
        state.index_keys = quantise.index_fp4(keys) if self.quantised else keys
        entries = rotate(latent, cos, sin)
        state.compressed = quantise.compressed_kv_fp4(entries) if self.quantised else entries
        state.note(f"L{layer}.latent", latent)

    def index_scores(self, qr, a, path, state, cos, sin):
        c, w = self.config, self.weights
        query = linear(self.activation(qr), w[path + "indexer.wq_b"]).unflatten(-1, (c.index_n_heads, c.index_head_dim))
        query = rotate(query, cos, sin)
        query = quantise.index_fp4(query) if self.quantised else query
        weight = bf(linear(a, w[path + "indexer.weights_proj.weight"]).float() * (c.index_head_dim * c.index_n_heads) ** -0.5)
        total = 0
        for head in range(c.index_n_heads):          # head by head: the product of all heads would be large
            dots = bf(torch.relu(bf(torch.bmm(query[:, :, head].float(), state.index_keys.float().transpose(1, 2)))))
            total = total + bf(dots * weight[:, :, head, None]).float()
        return bf(total)

    def select(self, qr, a, layer, path, state, cos, sin):
        """Top-k of one index source: [B, N, k] ascending, MISSING at the end."""
        c = self.config
        ratio, groups = c.compress_ratios[layer], state.compressed.shape[1]
        visible_count = (state.positions + 1) // ratio
        visible = torch.arange(groups, device=self.device)[None] < visible_count[:, None]
        scores = self.index_scores(qr, a, path, state, cos, sin).float().masked_fill(~visible, float("-inf"))
        if 0 <= c.candidate_source_layer_id < layer:
            scores = scores.masked_fill(~state.candidates, float("-inf"))
        if layer == c.candidate_source_layer_id:
            state.candidates = self.candidate_set(scores, visible_count)
        order = torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :min(c.index_topk, groups)]
        allowed = torch.gather(scores, -1, order) > float("-inf")
        order = torch.where(allowed, order, groups).sort(-1).values
        state.selected = torch.where(order < groups, order, MISSING)
        state.note(f"L{layer}.topk", state.selected)

    def candidate_set(self, scores, visible_count):
        """Entries in the best blocks of every query: bool like scores."""
        c = self.config
        size, groups = c.candidate_block_size, scores.shape[-1]
        blocks = F.pad(scores, (0, -groups % size), value=float("-inf")).unflatten(-1, (-1, size)).amax(-1)
        newest = torch.div(visible_count - 1, size, rounding_mode="floor").clamp(min=0)
        blocks = blocks.scatter(-1, newest[None, :, None].expand(scores.shape[0], -1, 1), float("inf"))
        kept = torch.sort(blocks, dim=-1, descending=True, stable=True).indices[..., :c.candidate_topk_blocks]
        keep = torch.zeros_like(blocks, dtype=torch.bool).scatter(-1, kept, True) & (blocks > float("-inf"))
        return keep.repeat_interleave(size, -1)[..., :groups]

    def attend(self, x, layer, path, state):
        c = self.config
        length, ratio = x.shape[1], c.compress_ratios[layer]
        cos, sin = self.rope(ratio > 0, state.positions)
        a = self.norm(x, path + "attn_norm")
        path = path + "attn."
        qr, query = self.queries(a, path, cos, sin)
        entries = self.window_kv(a, path, cos, sin)
        slots = min(length, c.sliding_window)
        listed = (state.positions - c.sliding_window + 1).clamp(min=0)[:, None] + torch.arange(slots, device=self.device)
        listed = torch.where(listed <= state.positions[:, None], listed, MISSING)[None].expand(x.shape[0], -1, -1)
        if ratio:
            if layer in c.kv_source_layer_ids:
                self.compress(a, layer, path, state)
            if layer in c.index_source_layer_ids and state.compressed.shape[1]:
                self.select(qr, a, layer, path, state, cos, sin)
            if state.compressed.shape[1]:
                entries = torch.cat((entries, state.compressed), 1)
                chosen = torch.where(state.selected >= 0, state.selected + length, MISSING)
                listed = torch.cat((listed, chosen), -1)
        attended = self.attend_in_chunks(query, entries, listed, self.weights[path + "attn_sink"])
        state.note(f"L{layer}.attn_o", attended)
        return self.project_out(attended, path, cos, sin)

    def attend_in_chunks(self, query, entries, listed, sink):
        budget = 2 ** 24 if query.is_cuda else 2 ** 21
        rows = max(1, budget // (query.shape[0] * query.shape[2] * ATTENTION_BLOCK))
        scale = self.config.head_dim ** -0.5
        return torch.cat([attention_core(query[:, s:s + rows], entries, listed[:, s:s + rows], sink, scale, self.round_weights)
                          for s in range(0, query.shape[1], rows)], 1)

    # ------------------------------------------------------------ experts and engram

    def experts(self, x, path, is_image, per_token):
        c, w = self.config, self.weights
        flat = self.norm(x, path + "ffn_norm").flatten(0, 1)
        path = path + "ffn."
        scores = torch.sqrt(F.softplus(linear32(flat, w[path + "gate.weight"])))
        bias = torch.where(is_image.flatten()[:, None], w[path + "gate.bias_vl"], w[path + "gate.bias"])
        chosen = torch.sort(scores + bias, dim=-1, descending=True, stable=True).indices[:, :per_token]
        picked = torch.gather(scores, 1, chosen)
        picked = picked / (picked.sum(-1, keepdim=True) + 1e-20) if per_token > 1 else picked
        picked = picked * c.routed_scaling_factor
        quantised = self.activation(flat)
        total = torch.zeros(flat.shape, dtype=torch.float32, device=self.device)
        for expert in range(w[path + "gate.weight"].shape[0]):
            row, place = (chosen == expert).nonzero(as_tuple=True)
            name = f"{path}experts.{expert}."
            inner = swiglu(linear(quantised[row], w[name + "w1"]), linear(quantised[row], w[name + "w3"]), c.swiglu_limit)
            inner = bf(inner * picked[row, place, None])
            total[row] += linear(self.activation(inner), w[name + "w2"]).float()
        name = path + "shared_experts."
        inner = bf(swiglu(linear(quantised, w[name + "w1"]), linear(quantised, w[name + "w3"]), c.swiglu_limit))
        shared = linear(self.activation(inner), w[name + "w2"])
        return bf(total + shared.float()).view(x.shape)

    def inject(self, streams, rows, path, is_image):
        c, w = self.config, self.weights
        hidden = c.hidden_size
        looked_up = w[path + "embed"][rows].flatten(-2)
        kv = linear(self.activation(looked_up), w[path + "wkv"]).float()
        keys, value = kv[..., :4 * hidden].unflatten(-1, (4, hidden)), kv[..., 4 * hidden:]
        x = streams.float()
        gain = w[path + "q_weight"].float() * w[path + "k_weight"].float()
        rs = torch.rsqrt(x.square().mean(-1) + c.rms_norm_eps) * torch.rsqrt(keys.square().mean(-1) + c.rms_norm_eps)
        dot = (x * gain * keys).sum(-1) * rs * hidden ** -0.5
        gate = torch.sigmoid(torch.copysign(dot.abs().clamp(min=1e-6).sqrt(), dot))
        gate = gate.masked_fill(is_image[..., None], 0.0)
        return bf(x + gate[..., None] * value[..., None, :])

    # ------------------------------------------------------------ the whole pass

    def block(self, streams, pre, layer, path, attention, is_image, per_token):
        pre_attn, post, comb = self.mix(streams, path + "hc_attn")
        streams = self.spread(post, comb, attention(self.collapse(pre, streams)), streams)
        pre_ffn, post, comb = self.mix(streams, path + "hc_ffn")
        y = self.experts(self.collapse(pre_attn, streams), path, is_image, per_token)
        return self.spread(post, comb, y, streams), pre_ffn

    def start_streams(self, rows):
        pre = torch.zeros(*rows.shape[:2], 4, device=self.device)
        pre[..., 0] = 1
        return rows[:, :, None].expand(-1, -1, 4, -1).contiguous(), pre

    def start_pass(self, tokens, trace=None):
        """tokens: int array [B, N]; image spans carry the image token at every position."""
        c = self.config
        batch, length = tokens.shape
        is_image = tokens == c.image_token_id
        positions = np.tile(np.arange(length), batch)
        pad = int(self.token_map[c.engram_pad_token_id])
        rows = engram.hash_rows(self.token_map[tokens].ravel(), is_image.ravel(), positions, pad, c)
        rows = rows.reshape(len(c.engram_layer_ids), batch, length, -1)
        return Pass(torch.arange(length, device=self.device), torch.from_numpy(is_image).to(self.device),
                    torch.from_numpy(rows).to(self.device), trace=trace)

    @torch.no_grad()
    def forward(self, tokens, spans=(), trace=None):
        """spans: list of (sequence, position, rows) replacing embedding rows. -> collapsed hidden state, pass state"""
        c = self.config
        tokens = np.asarray(tokens)
        state = self.start_pass(tokens, trace)
        rows = self.weights["embed.weight"][torch.from_numpy(tokens).long().to(self.device)]
        for sequence, position, values in spans:
            rows[sequence, position:position + len(values)] = values
        streams, pre = self.start_streams(rows)
        for layer in range(c.num_hidden_layers):
            path = f"layers.{layer}."
            if layer in c.engram_layer_ids:
                place = c.engram_layer_ids.index(layer)
                streams = self.inject(streams, state.hash_rows[place], path + "engram.", state.is_image)
            if layer in c.dspark_target_layer_ids:
                state.features.append(bf(streams.float().mean(-2)))
            state.note(f"L{layer}.x_in", streams)
            streams, pre = self.block(streams, pre, layer, path, lambda u: self.attend(u, layer, path, state),
                                      state.is_image, c.num_experts_per_tok)
            state.note(f"L{layer}.x_out", streams)
        return self.collapse(pre, streams), state

    def logits(self, hidden, norm="norm"):
        return linear32(self.norm(hidden, norm), self.weights["head.weight"])

    # ------------------------------------------------------------ vision

    @torch.no_grad()
    def encode_image(self, canvas):
        """uint8 [height, width, 3], both multiples of the patch size -> rows of the image span."""
        c, w = self.config, self.weights
        size, fold = c.patch_size, c.downsample_ratio
        pixels = torch.from_numpy(np.ascontiguousarray(canvas)).to(self.device).float()
        pixels = bf((pixels / 255 - 0.5) / 0.5)
        height, width = canvas.shape[0] // size, canvas.shape[1] // size
        patches = pixels.view(height, size, width, size, 3).permute(0, 2, 4, 1, 3).reshape(height * width, -1)
        x = self.vision_linear(patches, "vision.patch_embed.proj")
        heads, dim = c.vision_heads, c.vision_hidden_size // c.vision_heads
        frequencies = torch.tensor([c.vision_rope_theta ** (-2 * j / (dim // 2)) for j in range(dim // 4)], device=self.device)
        row, column = torch.arange(height, device=self.device).float(), torch.arange(width, device=self.device).float()
        angle = torch.cat(((row[:, None] * frequencies)[:, None].expand(-1, width, -1),
                           (column[:, None] * frequencies)[None].expand(height, -1, -1)), -1).flatten(0, 1)[:, None]
        for layer in range(c.vision_layers):
            x = self.vision_block(x, f"vision.blocks.{layer}.", heads, dim, angle.cos(), angle.sin())
        x = rms_norm(x, w["vision.norm.weight"], VISION_EPS).view(height, width, -1)
        x = F.pad(x, (0, 0, 0, -width % fold, 0, -height % fold))
        rows, columns = x.shape[0] // fold, x.shape[1] // fold
        cells = x.view(rows, fold, columns, fold, -1).permute(0, 2, 4, 1, 3).reshape(rows * columns, -1)
        out = bf(F.gelu(self.vision_linear(cells, "aligner.w1").float()))
        out = self.vision_linear(out, "aligner.w2").view(rows, columns, -1)
        line = torch.cat((out, w["image_newline"].expand(rows, 1, -1)), 1).flatten(0, 1)
        return torch.cat((w["image_start"][None], line, w["image_end"][None]))

    def vision_linear(self, x, name):
        bias = self.weights.get(name + ".bias")
        y = linear32(x, self.weights[name + ".weight"])
        return bf(y if bias is None else y + bias.float())

    def vision_block(self, x, path, heads, dim, cos, sin):
        qkv = self.vision_linear(rms_norm(x, self.weights[path + "norm1.weight"], VISION_EPS), path + "attn.wqkv")
        q, k, v = qkv.view(-1, 3, heads, dim).unbind(1)

        def turn(t):
            first, second = t.float().chunk(2, -1)
            return bf(torch.cat((first * cos - second * sin, second * cos + first * sin), -1))

        q, k, v = (t.transpose(0, 1).float() for t in (turn(q), turn(k), v))
        o = bf(torch.softmax(q @ k.transpose(1, 2) * dim ** -0.5, -1) @ v).transpose(0, 1).flatten(1)
        x = bf(x + self.vision_linear(o, path + "attn.wo"))
        gate, up = self.vision_linear(rms_norm(x, self.weights[path + "norm2.weight"], VISION_EPS), path + "mlp.w1").chunk(2, -1)
        return bf(x + self.vision_linear(bf(bf(F.silu(gate.float())) * up), path + "mlp.w2"))

    # ------------------------------------------------------------ drafting

    @torch.no_grad()
    def draft_rings(self, state):
        """Window rows of every draft layer for all positions of one sequence (batch 1): list of [N, d]."""
        c = self.config
        features = torch.cat(state.features, -1)
        main = self.norm(linear(self.activation(features), self.weights["mtp.0.main_proj"]), "mtp.0.main_norm")
        cos, sin = self.rope(False, state.positions)
        return [self.window_kv(main, f"mtp.{stage}.attn.", cos, sin)[0] for stage in range(c.num_nextn_predict_layers)]

    @torch.no_grad()
    def draft(self, rings, position, anchor):
        """Greedy drafts after committing `position`, with `anchor` as the next token. -> ids, raw confidences, logits"""
        c, w = self.config, self.weights
        last = f"mtp.{c.num_nextn_predict_layers - 1}."
        ids = torch.full((1, c.dspark_block_size), c.dspark_noise_token_id, device=self.device)
        ids[0, 0] = anchor
        positions = torch.arange(position + 1, position + 1 + c.dspark_block_size, device=self.device)
        cos, sin = self.rope(False, positions)
        streams, pre = self.start_streams(w["embed.weight"][ids])
        no_image = torch.zeros(1, c.dspark_block_size, dtype=torch.bool, device=self.device)
        for stage, ring in enumerate(rings):
            past = ring[max(0, position + 1 - c.sliding_window):position + 1]
            path = f"mtp.{stage}."
            attention = lambda u: self.draft_attend(u, path, past, cos, sin)
            streams, pre = self.block(streams, pre, stage, path, attention, no_image, c.dspark_num_experts_per_tok)
        hidden = self.collapse(pre, streams)[0]
        base = self.logits(hidden, last + "norm")
        previous, drafted, confidence, all_logits = anchor, [], [], []
        for place in range(c.dspark_block_size):
            embedded = w[last + "markov_head.embed.weight"][previous]
            logits = base[place] + linear32(embedded, w[last + "markov_head.head.weight"])
            probe = torch.cat((hidden[place], embedded)).float()
            confidence.append(float(linear32(probe, w[last + "confidence_head.proj.weight"])))
            previous = int(logits.argmax())
            drafted.append(previous)
            all_logits.append(logits)
        return drafted, confidence, torch.stack(all_logits)

    def draft_attend(self, u, path, past, cos, sin):
        a = self.norm(u, path + "attn_norm")
        path = path + "attn."
        _, query = self.queries(a, path, cos, sin)
        entries = torch.cat((past[None], self.window_kv(a, path, cos, sin)), 1)
        count, slots = past.shape[0], self.config.sliding_window
        listed = [*range(count), *[MISSING] * (slots - count), *range(count, entries.shape[1])]
        listed = torch.tensor(listed, device=self.device)[None, None].expand(1, u.shape[1], -1)
        attended = attention_core(query, entries, listed, self.weights[path + "attn_sink"], self.config.head_dim ** -0.5)
        return self.project_out(attended, path, cos, sin)
