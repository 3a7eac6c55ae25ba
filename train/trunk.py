"""The fast training model: one packed buffer of documents, fixed shapes, quantisation-aware from the first step.

Documents lie one after another and start at even places; positions restart, and attention masks compare document
numbers. Main attention is dense over all visible compressed entries, or, when `sparse` is set, over the real selection
(selection.py); the indexer learns beside it, from the attention mass. Functions are plain PyTorch, compiled one by one on a GPU, around the kernels of kernels.py.
"""
import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from . import engram, kernels, quantise, selection
from .kernels import straight_through
from .parameters import FP4_STACKS, FP8_STACKS
from .trunk_limits import MAX_DOCUMENT

BLOCK = 128                     # attention tile
EPS, VISION_EPS = 1e-20, 1e-6
ENGRAM_SLOPE = 0.05             # softens the gradient of the gate near zero

LAYER_NAMES = ("attn_norm", "ffn_norm", "q_norm", "kv_norm", "hc_attn_fn", "hc_attn_base", "hc_attn_scale", "hc_ffn_fn",
               "hc_ffn_base", "hc_ffn_scale", "attn_sink", "gate")


# ---------------------------------------------------------------- plain functions, compiled on a GPU

def rounded(weight):
    """A parameter as stored in bf16, in fp32 arithmetic."""
    return weight.bfloat16().float()


def norm32(x, weight, eps=EPS):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * rounded(weight)


def rms_norm(x, weight, eps=EPS):
    return norm32(x, weight, eps).bfloat16()


def activation(x):
    return straight_through(x, quantise.activation_fp8(x))


def window_format(x):
    return straight_through(x, quantise.activation_fp8(x))


def compressed_format(x):
    return straight_through(x, quantise.compressed_kv_fp4(x))


def index_format(x):
    return straight_through(x, quantise.index_fp4(x))


def mix_coefficients(products, squares, width, base, scale):
    """-> pre, post, logits of the 4 x 4 mix"""
    m = products * torch.rsqrt(squares / width + EPS)[:, None]
    pre = torch.sigmoid(m[:, :4] * scale[0] + base[:4]) + kernels.MIX_EPS
    post = 2 * torch.sigmoid(m[:, 4:8] * scale[1] + base[4:8])
    return pre, post, (m[:, 8:] * scale[2] + base[8:]).view(-1, 4, 4)


def attention_inputs(u, attn_norm, wq_a, q_norm, wq_b, wkv, kv_norm):
    """-> normed input, query latent, queries, window vector (both before rotation)"""
    a = rms_norm(u, attn_norm)
    quantised = activation(a)
    latent = rms_norm(quantised @ wq_a.t(), q_norm)
    return a, latent, activation(latent) @ wq_b.t(), rms_norm(quantised @ wkv.t(), kv_norm)


def window_only(x, wkv, kv_norm):
    """Window vectors of the draft layers from the target features."""
    return rms_norm(activation(x) @ wkv.t(), kv_norm)


def compress(a, wkv, wgate, norm, ratio):
    """Latent vectors of the compressed cache: every token, or pairs pooled with learned weights."""
    if ratio == 1:
        return rms_norm(a @ wkv.bfloat16().t(), norm)
    x = a.float()
    keys = (x @ rounded(wkv).t()).view(-1, ratio, wkv.shape[0])
    weights = torch.softmax((x @ rounded(wgate).t()).view(-1, ratio, wkv.shape[0]), 1)
    return rms_norm((weights * keys).sum(1).bfloat16(), norm)


def with_sink(out, lse, sink):
    """The sink adds to the denominator only. [1, H, T, d] -> [T, H, d]"""
    share = torch.sigmoid(lse[0] - sink[:, None])[..., None]
    return (out[0].float() * share).bfloat16().transpose(0, 1).contiguous()


def project_out(o, wo_a, wo_b, groups):
    parts = o.flatten(1).unflatten(1, (groups, -1)).unbind(1)
    z = torch.cat([part @ weight.t() for part, weight in zip(parts, wo_a.chunk(groups))], -1)
    return activation(z) @ wo_b.t()


def swiglu(gate, up, limit=10.0):
    return F.silu(gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit)


class ToExperts(torch.autograd.Function):
    """Rows in expert order; the gradient gathers instead of scattering."""

    @staticmethod
    def forward(ctx, x, order, inverse, per_token):
        ctx.save_for_backward(inverse)
        ctx.per_token = per_token
        return x[order // per_token]

    @staticmethod
    def backward(ctx, grad):
        inverse, = ctx.saved_tensors
        return grad[inverse].view(-1, ctx.per_token, grad.shape[-1]).float().sum(1).to(grad.dtype), None, None, None


class FromExperts(torch.autograd.Function):
    """Back to token order, summed over the experts of a token in fp32."""

    @staticmethod
    def forward(ctx, y, order, inverse, per_token):
        ctx.save_for_backward(order)
        ctx.per_token = per_token
        return y[inverse].view(-1, per_token, y.shape[-1]).float().sum(1)

    @staticmethod
    def backward(ctx, grad):
        order, = ctx.saved_tensors
        return grad[order // ctx.per_token].bfloat16(), None, None, None


def grouped_product(x, weight, ends):
    """x rows sorted by expert, weight [E, out, in] -> x @ weight[expert].T"""
    if x.is_cuda:
        return torch._grouped_mm(x, weight.transpose(-2, -1), offs=ends)
    starts = [0, *ends.tolist()]
    return torch.cat([x[s:e] @ w.t() for s, e, w in zip(starts, starts[1:], weight)])


def experts(u, ffn_norm, gate, bias, bias_image, is_image, w13, w2, shared_w13, shared_w2, per_token, scaling):
    """-> output, load per expert of text and image tokens"""
    x = rms_norm(u, ffn_norm)
    num_experts = gate.shape[0]
    scores = F.softplus(x.float() @ rounded(gate).t()).sqrt()
    chosen = (scores.detach() + torch.where(is_image[:, None], bias_image, bias)).topk(per_token, -1).indices
    weight = scores.gather(1, chosen)
    weight = weight / (weight.sum(-1, keepdim=True) + 1e-20) * scaling
    flat, order = torch.sort(chosen.flatten(), stable=True)
    inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=x.device))
    ends = torch.searchsorted(flat, torch.arange(num_experts, device=x.device), right=True).int()
    quantised = activation(x)
    up = grouped_product(ToExperts.apply(quantised, order, inverse, per_token), w13, ends)
    inner = (swiglu(*up.chunk(2, -1)) * weight.flatten()[order][:, None]).bfloat16()
    routed = FromExperts.apply(grouped_product(activation(inner), w2, ends), order, inverse, per_token)
    inner = swiglu(*(quantised @ shared_w13.t()).chunk(2, -1)).bfloat16()
    shared = activation(inner) @ shared_w2.t()
    with torch.no_grad():
        hits = (chosen[:, :, None] == torch.arange(num_experts, device=x.device)).sum(1).float()
        image_load = (hits * is_image[:, None]).sum(0)
        load = torch.stack((hits.sum(0) - image_load, image_load))
    return (routed + shared.float()).bfloat16(), load


def inject(streams, table_rows, wkv, gain, is_image):
    """Engram: adds the looked-up value to every stream through a gate."""
    size = streams.shape[-1]
    looked_up = straight_through(table_rows, quantise.table_fp8(table_rows)).flatten(1).bfloat16()
    kv = (activation(looked_up) @ wkv.t()).float()
    keys, value = kv[:, :4 * size].unflatten(-1, (4, size)), kv[:, 4 * size:]
    x = streams.float()
    rs = torch.rsqrt(x.square().mean(-1) + EPS) * torch.rsqrt(keys.square().mean(-1) + EPS)
    dot = (x * rounded(gain) * keys).sum(-1) * rs * size ** -0.5
    soft = dot * torch.rsqrt(dot.abs() + ENGRAM_SLOPE)
    root = straight_through(soft, torch.sign(dot) * torch.sqrt(dot.abs().clamp(min=1e-6)))
    gate = torch.where(is_image[:, None], 0.0, torch.sigmoid(root))
    return (x + gate[:, :, None] * value[:, None, :]).bfloat16()


def answer_loss(hidden, norm, head, wanted, weight):
    """-> weighted sum of losses, losses, hits"""
    logits = rms_norm(hidden, norm).float() @ rounded(head).t()
    losses = F.cross_entropy(logits, wanted, reduction="none")
    return (losses * weight).sum(), losses.detach(), logits.argmax(-1) == wanted


def patch_encoder(patches, place, row, column, there, cells, p, config):
    """Padded images -> aligner rows [M, cells, D].

    patches [P, 588] uint8; place [M, N] into patches; row, column [M, N]; there [M, N] bool; cells [M, C, 9] into N,
    N itself meaning a zero patch.
    """
    number, heads = place.shape[0], config.vision_heads
    size = config.vision_hidden_size
    dim = size // heads
    b = lambda name: p[name].bfloat16()
    pixels = ((patches.float() / 255 - 0.5) / 0.5).bfloat16()
    x = F.linear(pixels, b("patch_weight"), b("patch_bias"))[place]
    frequency = config.vision_rope_theta ** (-torch.arange(dim // 4, device=x.device).float() * 4 / dim)
    angle = torch.cat((row[..., None].float() * frequency, column[..., None].float() * frequency), -1)[:, :, None]
    cos, sin = angle.cos(), angle.sin()

    def turn(t):
        first, second = t.float().chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).bfloat16().transpose(1, 2)

    for layer in range(config.vision_layers):
        qkv = F.linear(rms_norm(x, p["vision_norm1"][layer], VISION_EPS), b("vision_wqkv")[layer], b("vision_wqkv_bias")[layer])
        q, k, v = qkv.view(number, -1, 3, heads, dim).unbind(2)
        o = F.scaled_dot_product_attention(turn(q), turn(k), v.transpose(1, 2), attn_mask=there[:, None, None])
        x = x + F.linear(o.transpose(1, 2).flatten(2), b("vision_wo")[layer], b("vision_wo_bias")[layer])
        gate, up = F.linear(rms_norm(x, p["vision_norm2"][layer], VISION_EPS), b("vision_w1")[layer]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, b("vision_w2")[layer])
    x = F.pad(rms_norm(x, p["vision_norm"], VISION_EPS), (0, 0, 0, 1))
    folded = torch.gather(x, 1, cells.flatten(1)[..., None].expand(-1, -1, size)).view(number, cells.shape[1], -1, size)
    folded = folded.transpose(2, 3).flatten(2)                # channel-major
    inner = F.gelu(F.linear(folded, b("aligner_w1"), b("aligner_b1")))
    return F.linear(inner, b("aligner_w2"), b("aligner_b2"))


def attention_mass(q, entries, visible, scale):
    """Share of every compressed entry in the attention of some query rows, mean over heads. q [R, H, d], entries [E, d]"""
    scores = (q @ entries.t()).float() * scale
    return torch.softmax(scores.masked_fill(~visible[:, None], -1e30), -1).mean(1)


def index_loss(mass, latent, a, keys, wq_b, weights_proj, cos, sin, visible, heads):
    """KL from the attention mass to the softmax of the index scores, on some query rows. keys [E, d]"""
    dim = keys.shape[-1]
    query = (activation(latent) @ wq_b.t()).view(-1, heads, dim)
    pairs = cos.shape[-1]
    even, odd = query[..., dim - 2 * pairs:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos[:, None] - odd * sin[:, None], even * sin[:, None] + odd * cos[:, None]), -1).flatten(-2)
    query = index_format(torch.cat((query[..., :dim - 2 * pairs], turned.bfloat16()), -1))
    weight = (a @ weights_proj.bfloat16().t()).float() * (dim * heads) ** -0.5
    scores = (torch.relu(query @ keys.t()).float() * weight[:, :, None]).sum(1)
    logs = torch.log_softmax(scores.masked_fill(~visible, -1e30), -1)
    divergence = (mass * (torch.log(mass + 1e-9) - logs)).masked_fill(~visible, 0.0).sum(-1)
    seen = visible.any(1).float()
    return (divergence * seen).sum() / seen.sum().clamp(min=1)


def index_keys(latent, wk, norm):
    return rms_norm(latent @ wk.bfloat16().t(), norm)


COMPILED = [mix_coefficients, attention_inputs, window_only, window_format, compressed_format, index_format, compress,
            with_sink, project_out, experts, inject, answer_loss, patch_encoder, attention_mass, index_loss, index_keys,
            selection.index_query, flex_attention]


class Functions:
    """The functions above, compiled or as they are."""

    def __init__(self, compiled):
        for function in COMPILED:
            ready = torch.compile(function, dynamic=False) if compiled else function
            setattr(self, function.__name__, ready)


# ---------------------------------------------------------------- attention masks

def window_part(document, tokens, window):
    return lambda b, h, q, k: (k <= q) & (q - k < window) & (document[q] == document[k])


def with_compressed(document, start, free, bits, tokens, window, ratio):
    """Keys: `tokens` window vectors, then tokens / ratio compressed entries, of which `bits` tells the chosen ones."""
    last = bits.shape[1] * 32 - 1

    def mask(b, h, q, k):
        in_window = (k < tokens) & (k <= q) & (q - k < window)
        first = torch.where(k < tokens, k, (k - tokens) * ratio)
        visible = (k >= tokens) & (first + ratio - 1 <= q)
        place = ((first - start[q]) >> (ratio - 1)).clamp(min=0, max=last)
        chosen = (free[q] > 0) | (((bits[q, place >> 5] >> (place & 31)) & 1) > 0)
        return (in_window | (visible & chosen)) & (document[q] == document[first.clamp(max=tokens - 1)])
    return mask


def ordered(blocks):
    """Dense block flags -> counts and indices as BlockMask wants them."""
    order = torch.argsort(blocks.int(), dim=-1, descending=True, stable=True).int()
    return blocks.sum(-1).int()[None, None], order[None, None].contiguous()


class Masks:
    """Block lists of all kinds of layers, in buffers that keep their place so that a captured graph can replay.

    A kind is the index source whose selection a layer reads, or None for layers with a window alone.
    """

    def __init__(self, config, tokens, device, bits):
        self.tokens, self.window, self.topk = tokens, config.sliding_window, config.index_topk
        self.ratios = {None: 0, **{source: config.compress_ratios[source] for source in config.index_source_layer_ids}}
        self.document, self.start = (torch.zeros(tokens, dtype=torch.int32, device=device) for _ in range(2))
        self.free = {ratio: torch.ones(tokens, dtype=torch.int32, device=device) for ratio in set(self.ratios.values()) if ratio}
        self.functions = {None: window_part(self.document, tokens, self.window)}
        for source, chosen in bits.items():
            ratio = self.ratios[source]
            self.functions[source] = with_compressed(self.document, self.start, self.free[ratio], chosen, tokens, self.window, ratio)
        self.lists, self.masks = {}, {}

    def block_flags(self, ratio):
        """-> (partial, full) flags [query blocks, key blocks]"""
        count = self.tokens // BLOCK
        parts = self.document.view(count, BLOCK)
        first, last = parts[:, 0], parts[:, -1]
        q = torch.arange(count, device=first.device)[:, None]
        window = (q == q.T) | ((q - q.T == 1) & (last[None] >= first[:, None]))
        if ratio == 0:
            return window, torch.zeros_like(window)
        k = torch.arange(count // ratio, device=first.device)[None]
        k_first, k_last = first[0::ratio][None], last[ratio - 1::ratio][None]
        step = BLOCK * ratio
        some = (step * k + ratio - 1 <= BLOCK * q + BLOCK - 1) & (k_last >= first[:, None])
        full = (step * k + step - 1 <= BLOCK * q) & (k_first == last[:, None]) & (k_first == k_last)
        full = full & self.free[ratio].view(count, BLOCK).bool().all(1)[:, None]
        return torch.cat((window, some & ~full), 1), torch.cat((torch.zeros_like(window), full), 1)

    def update(self, document, positions, sparse):
        self.document.copy_(document)
        self.start.copy_(torch.arange(self.tokens, device=positions.device) - positions)
        for ratio, free in self.free.items():
            free.copy_(torch.div(positions + 1, ratio, rounding_mode="floor") <= self.topk if sparse else torch.ones_like(free))
        flags = {ratio: self.block_flags(ratio) for ratio in (0, *self.free)}
        fresh_lists = {ratio: ordered(partial) + ordered(full) + ordered(partial.T.contiguous()) + ordered(full.T.contiguous())
                       for ratio, (partial, full) in flags.items()}
        for ratio, fresh in fresh_lists.items():
            if ratio in self.lists:
                for kept, new in zip(self.lists[ratio], fresh):
                    kept.copy_(new)
        if self.lists:
            return
        self.lists = fresh_lists
        for kind, ratio in self.ratios.items():
            partial, fresh = flags[ratio][0], fresh_lists[ratio]
            names = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices", "q_num_blocks", "q_indices",
                     "full_q_num_blocks", "full_q_indices")
            self.masks[kind] = BlockMask(seq_lengths=(self.tokens, partial.shape[1] * BLOCK), BLOCK_SIZE=(BLOCK, BLOCK),
                                         mask_mod=self.functions[kind], **dict(zip(names, fresh)))

    def dense(self, kind):
        """The whole mask, for tests on small buffers."""
        ratio = self.ratios[kind]
        q = torch.arange(self.tokens, device=self.document.device)[:, None]
        k = torch.arange(self.tokens + (self.tokens // ratio if ratio else 0), device=q.device)[None]
        return self.functions[kind](0, 0, q, k)


def attend_densely(query, keys, mask, scale):
    """What flex_attention computes, for tests on a CPU. query [1, H, T, d], keys [1, 1, K, d]"""
    scores = (query.float() @ keys.float().transpose(-1, -2)) * scale
    scores = scores.masked_fill(~mask, float("-inf"))
    lse = torch.logsumexp(scores, -1)
    return torch.exp(scores - lse[..., None]) @ keys.float(), lse


# ---------------------------------------------------------------- the model

class Trunk:
    """Holds no optimiser state. `values` are leaf tensors; `biases` move by the router rule."""

    def __init__(self, config, values, biases, token_map, tokens, compiled):
        self.config, self.values, self.biases, self.tokens = config, values, biases, tokens
        self.device = values["embed"].device
        self.run = Functions(compiled)
        self.compiled = compiled
        self.selector = selection.Selector(config, tokens, min(MAX_DOCUMENT, tokens), self.device.type)
        self.masks = Masks(config, tokens, self.device, self.selector.bits)
        self.sparse = False
        self.token_map = torch.as_tensor(np.asarray(token_map), device=self.device)
        self.primes = config.engram_primes
        self.multipliers = [engram.multipliers(layer, config.engram_compressed_vocab_size, config.engram_max_ngram_size)
                            for layer in config.engram_layer_ids]
        positions = torch.arange(config.max_position_embeddings, dtype=torch.float32, device=self.device)
        self.rope_tables = {}
        for compressed in (False, True):
            angle = positions[:, None] * torch.tensor(config.rope_frequencies(compressed), device=self.device)
            self.rope_tables[compressed] = (angle.cos(), angle.sin())

    def rope_at(self, compressed, positions):
        cos, sin = self.rope_tables[compressed]
        return cos[positions].contiguous(), sin[positions].contiguous()

    def layer_weights(self, prefix, num_layers):
        """Quantised and plain weights per layer."""
        v, layers = self.values, [dict() for _ in range(num_layers)]
        stacks = {name: kernels.quantised_weight(v[prefix + name]) for name in FP8_STACKS}
        stacks.update({name: kernels.quantised_weight(v[prefix + name], True) for name in FP4_STACKS})
        stacks.update({name: v[prefix + name] for name in LAYER_NAMES})
        stacks.update(bias=self.biases[prefix + "gate_bias"], bias_image=self.biases[prefix + "gate_bias_image"])
        for name, stack in stacks.items():
            for layer, weight in zip(layers, stack.unbind(0)):
                layer[name] = weight
        return layers

    def hash_rows(self, ids, positions, is_image):
        """[layers][T, columns]"""
        context = self.token_map[ids]
        pad = self.token_map[self.config.engram_pad_token_id]
        blocked, shifted = is_image, [torch.where(is_image, pad, context)]
        for distance in range(1, self.config.engram_max_ngram_size):
            blocked = blocked | (positions < distance) | torch.roll(is_image, distance)
            shifted.append(torch.where(blocked, pad, torch.roll(context, distance)))
        result = []
        for factors, table in zip(self.multipliers, self.primes):
            mixed, columns, offset = shifted[0] * factors[0], [], 0
            for distance, row in enumerate(table, 1):
                mixed = mixed ^ (shifted[distance] * factors[distance])
                for prime in row:
                    columns.append(mixed % prime + offset)
                    offset += prime
            result.append(torch.stack(columns, 1))
        return result

    def embed(self, batch):
        """Token rows; image spans are overwritten. The last row of the padded table takes unused span places."""
        v = self.values
        rows = kernels.lookup(v["embed"], batch["ids"]).bfloat16()
        aligned = self.run.patch_encoder(batch["patches"], batch["patch_place"], batch["patch_row"], batch["patch_column"],
                                         batch["patch_there"], batch["cells"], {k: v[k] for k in self.vision_names()}, self.config)
        marks = torch.stack([v[name] for name in ("image_start", "image_newline", "image_end")]).bfloat16()
        source = torch.cat((aligned.flatten(0, 1), marks))[batch["span_source"]]
        padded = torch.cat((rows, rows[:1].detach()))
        return padded.index_copy(0, batch["span_place"], source)[:-1]

    @staticmethod
    def vision_names():
        return ("patch_weight", "patch_bias", "vision_norm1", "vision_norm2", "vision_wqkv", "vision_wqkv_bias", "vision_wo",
                "vision_wo_bias", "vision_w1", "vision_w2", "vision_norm", "aligner_w1", "aligner_b1", "aligner_w2", "aligner_b2")

    def mix(self, streams, weights, site):
        products, squares = kernels.mix_dot(streams.flatten(1), weights[f"hc_{site}_fn"])
        pre, post, logits = self.run.mix_coefficients(products, squares, streams[0].numel(), weights[f"hc_{site}_base"],
                                                      weights[f"hc_{site}_scale"])
        return pre, post, kernels.sinkhorn(logits)

    def attention(self, query, keys, kind, sink):
        query, keys, scale = query.transpose(0, 1)[None], keys[None, None], self.config.head_dim ** -0.5
        if self.compiled:
            out, lse = self.run.flex_attention(query, keys, keys, block_mask=self.masks.masks[kind], scale=scale,
                                               enable_gqa=True, return_lse=True)
        else:
            out, lse = attend_densely(query, keys, self.masks.dense(kind), scale)
        return self.run.with_sink(out, lse, sink)

    def attend(self, u, layer, weights, state):
        """-> attention output; leaves queries and compressed entries in `state`"""
        c, run = self.config, self.run
        ratio = c.compress_ratios[layer]
        cos, sin = state["rope"][ratio > 0]
        a, latent, q, kv = run.attention_inputs(u, weights["attn_norm"], weights["wq_a"], weights["q_norm"], weights["wq_b"],
                                                weights["wkv"], weights["kv_norm"])
        q = kernels.rope(q.view(-1, c.num_attention_heads, c.head_dim), cos, sin)
        keys = run.window_format(kernels.rope(kv, cos, sin))
        if layer in c.kv_source_layer_ids:
            owner = c.kv_source_layer_ids.index(layer)
            v = self.values
            pooled = run.compress(a, v["compressor_wkv"][owner], v["compressor_wgate"][owner], v["compressor_norm"][owner], ratio)
            turned = kernels.rope(pooled, cos[::ratio].contiguous(), sin[::ratio].contiguous())
            state["entries"] = run.compressed_format(turned)
            index_keys = run.index_keys(pooled.detach(), v["indexer_wk"][owner], v["indexer_k_norm"][owner])
            state["index_keys"] = run.index_format(kernels.rope(index_keys, cos[::ratio].contiguous(), sin[::ratio].contiguous()))
        if layer in c.index_source_layer_ids:
            state["source"] = layer
            if self.sparse:
                self.select(layer, latent, a, state)
        if ratio:
            keys = torch.cat((keys, state["entries"]))
        rows = state["index_rows"]
        state["seen"].append(dict(q=q.detach()[rows], qr=latent.detach()[rows], a=a.detach()[rows],
                                  entries=state["entries"].detach() if ratio else None, index_keys=state.get("index_keys")))
        o = self.attention(q, keys, state["source"] if ratio else None, weights["attn_sink"])
        return run.project_out(kernels.rope(o, cos, sin, inverse=True), weights["wo_a"], weights["wo_b"], c.o_groups)

    @torch.no_grad()
    def select(self, source, latent, a, state):
        """Chooses the entries that every row of this index source and of the layers after it attends to."""
        c, number = self.config, self.config.index_source_layer_ids.index(source)
        query, weight = self.run.index_query(latent, a, state["indexer_wq_b"][number], self.values["indexer_weights_proj"][number],
                                             c.index_n_heads)
        query = self.run.index_format(kernels.rope(query, *state["rope"][True]))
        self.selector.select(source, query, state["index_keys"].detach(), weight, self.masks.start,
                             self.masks.free[c.compress_ratios[source]])

    def block(self, streams, pre, weights, attention, is_image, per_token):
        """-> streams, pre of the next sublayer, expert loads"""
        pre_attn, post, comb = self.mix(streams, weights, "attn")
        streams = kernels.spread(post, comb, attention(kernels.collapse(pre, streams)), streams)
        pre_ffn, post, comb = self.mix(streams, weights, "ffn")
        y, load = self.run.experts(kernels.collapse(pre_attn, streams), weights["ffn_norm"], weights["gate"], weights["bias"],
                                   weights["bias_image"], is_image, weights["expert_w13"], weights["expert_w2"],
                                   weights["shared_w13"], weights["shared_w2"], per_token, self.config.routed_scaling_factor)
        return kernels.spread(post, comb, y, streams), pre_ffn, load

    @staticmethod
    def start_streams(rows):
        pre = torch.zeros(rows.shape[0], 4, device=rows.device)
        pre[:, 0] = 1
        return rows[:, None].expand(-1, 4, -1).contiguous(), pre

    def forward(self, batch):
        """-> collapsed hidden state [T, D], and what the losses beside the main one need"""
        c, v = self.config, self.values
        positions, is_image = batch["positions"], batch["ids"] == c.image_token_id
        self.masks.update(batch["document"], positions, self.sparse)
        state = {"rope": {kind: self.rope_at(kind, positions) for kind in (False, True)}, "index_rows": batch["index_rows"],
                 "seen": [], "loads": [], "features": [], "indexer_wq_b": kernels.quantised_weight(v["indexer_wq_b"])}
        layers = self.layer_weights("", c.num_hidden_layers)
        engram_wkv = kernels.quantised_weight(v["engram_wkv"])
        hash_rows = self.hash_rows(batch["ids"], positions, is_image)
        streams, pre = self.start_streams(self.embed(batch))
        for layer, weights in enumerate(layers):
            if layer in c.engram_layer_ids:
                place = c.engram_layer_ids.index(layer)
                rows = kernels.lookup(v[f"engram_table_{place}"], hash_rows[place]).view(-1, hash_rows[place].shape[1], c.engram_head_dim)
                streams = self.run.inject(streams, rows, engram_wkv[place], v["engram_gain"][place], is_image)
            if layer in c.dspark_target_layer_ids:
                state["features"].append(streams.detach().float().mean(1).bfloat16())
            attention = lambda u: self.attend(u, layer, weights, state)
            streams, pre, load = self.block(streams, pre, weights, attention, is_image, c.num_experts_per_tok)
            state["loads"].append(load)
        return kernels.collapse(pre, streams), state

    def indexer_loss(self, state, batch):
        """Mean KL over the index sources, on the sampled rows.

        What an index source should find is the attention mass of the layers that share its selection; the candidate source
        also serves the layers that choose among its candidates.
        """
        c, v, rows = self.config, self.values, batch["index_rows"]
        wq_b, document = state["indexer_wq_b"], batch["document"]
        total = 0.0
        for number, source in enumerate(c.index_source_layer_ids):
            ratio, owner_layer = c.compress_ratios[source], c.kv_source_of(source)
            first = torch.arange(0, self.tokens, ratio, device=rows.device)[None]
            visible = (first + ratio - 1 <= rows[:, None]) & (document[::ratio][None] == document[rows][:, None])
            sharing = [l for l in range(c.num_hidden_layers) if c.compress_ratios[l] and
                       (c.index_source_of(l) == source or (source == c.candidate_source_layer_id and l > source))]
            with torch.no_grad():
                entries = state["seen"][owner_layer]["entries"]
                mass = sum(self.run.attention_mass(state["seen"][l]["q"], entries, visible, c.head_dim ** -0.5)
                           for l in sharing) / len(sharing)
            cos, sin = state["rope"][True]
            keys, seen = state["seen"][owner_layer]["index_keys"], state["seen"][source]
            total = total + self.run.index_loss(mass, seen["qr"], seen["a"], keys, wq_b[number], v["indexer_weights_proj"][number],
                                                cos[rows], sin[rows], visible, c.index_n_heads)
        return total / len(c.index_source_layer_ids)

    def losses(self, batch):
        """-> weighted answer loss, indexer loss, per-row losses and hits, state"""
        hidden, state = self.forward(batch)
        rows = batch["target_rows"]
        wanted = batch["ids"][rows + 1]
        total, each, hits = self.run.answer_loss(hidden[rows], self.values["norm"], self.values["head"], wanted, batch["target_weights"])
        return total / batch["target_weights"].sum(), self.indexer_loss(state, batch), each, hits, state
