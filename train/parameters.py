"""Parameters of the mini model: starting values, and their names in the released checkpoint.

For speed the training keeps one tensor for all layers of a kind (first axis = layer) and the gate and up matrices of
an expert in one. Draft layers carry the prefix "draft_"; the rest of the draft head likewise.
"""
import torch

FP8_STACKS = ("wq_a", "wq_b", "wkv", "wo_a", "wo_b", "shared_w13", "shared_w2")
FP4_STACKS = ("expert_w13", "expert_w2")
EMBED_STD = 0.5
HALF = 0.5                     # gain of projections that write into the streams


class Initialiser:
    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)
        self.values = {}

    def normal(self, name, *shape, gain=1.0, std=None):
        std = gain * shape[-1] ** -0.5 if std is None else std
        self.values[name] = torch.randn(*shape, generator=self.generator) * std

    def constant(self, name, value, *shape):
        self.values[name] = torch.full(shape, float(value))


def mixing_base(num_layers, offset):
    """Bias of the stream mix: each sublayer reads mostly one stream (rotating), writes to all, keeps streams apart."""
    base = torch.zeros(num_layers, 24)
    for layer in range(num_layers):
        base[layer, :4] = -2.0
        base[layer, (layer + offset) % 4] = 1.5
        base[layer, 8:] = (torch.eye(4) * 4).flatten()
    return base


def add_layers(init, config, prefix, num_layers, num_experts):
    hidden, heads, head_dim = config.hidden_size, config.num_attention_heads, config.head_dim
    inner, latent = config.moe_intermediate_size, config.o_groups * config.o_lora_rank

    def name(text):
        return prefix + text

    for norm, size in (("attn_norm", hidden), ("ffn_norm", hidden), ("q_norm", config.q_lora_rank), ("kv_norm", head_dim)):
        init.constant(name(norm), 1, num_layers, size)
    for offset, site in enumerate(("attn", "ffn")):
        init.normal(name(f"hc_{site}_fn"), num_layers, 24, 4 * hidden)
        init.values[name(f"hc_{site}_base")] = mixing_base(num_layers, offset)
        init.constant(name(f"hc_{site}_scale"), 0.1, num_layers, 3)
    init.constant(name("attn_sink"), 0, num_layers, heads)
    init.normal(name("wq_a"), num_layers, config.q_lora_rank, hidden)
    init.normal(name("wq_b"), num_layers, heads * head_dim, config.q_lora_rank)
    init.normal(name("wkv"), num_layers, head_dim, hidden)
    init.normal(name("wo_a"), num_layers, latent, heads * head_dim // config.o_groups)
    init.normal(name("wo_b"), num_layers, hidden, latent, gain=HALF)
    init.normal(name("gate"), num_layers, num_experts, hidden)
    init.normal(name("expert_w13"), num_layers, num_experts, 2 * inner, hidden)
    init.normal(name("expert_w2"), num_layers, num_experts, hidden, inner, gain=HALF)
    init.normal(name("shared_w13"), num_layers, 2 * inner, hidden)
    init.normal(name("shared_w2"), num_layers, hidden, inner, gain=HALF)


def add_sparse_parts(init, config):
    hidden, head_dim, index_dim = config.hidden_size, config.head_dim, config.index_head_dim
    owners, sources = len(config.kv_source_layer_ids), len(config.index_source_layer_ids)
    init.normal("compressor_wkv", owners, head_dim, hidden)
    init.normal("compressor_wgate", owners, head_dim, hidden, std=0.02)
    init.constant("compressor_norm", 1, owners, head_dim)
    init.normal("indexer_wk", owners, index_dim, head_dim)
    init.constant("indexer_k_norm", 1, owners, index_dim)
    init.normal("indexer_wq_b", sources, config.index_n_heads * index_dim, config.q_lora_rank)
    init.normal("indexer_weights_proj", sources, config.index_n_heads, hidden)


def add_engram(init, config):
    hidden = config.hidden_size
    columns = (config.engram_max_ngram_size - 1) * config.engram_n_heads
    for place, table in enumerate(config.engram_primes):
        init.normal(f"engram_table_{place}", sum(map(sum, table)), config.engram_head_dim, std=EMBED_STD)
    init.normal("engram_wkv", len(config.engram_layer_ids), 5 * hidden, columns * config.engram_head_dim)
    init.values["engram_wkv"][:, 4 * hidden:] *= 0.3
    init.constant("engram_gain", 1, len(config.engram_layer_ids), 4, hidden)


def add_vision(init, config):
    size, inner, hidden, layers = config.vision_hidden_size, config.vision_intermediate_size, config.hidden_size, config.vision_layers
    init.normal("patch_weight", size, 3 * config.patch_size ** 2)
    init.constant("patch_bias", 0, size)
    for norm in ("vision_norm1", "vision_norm2"):
        init.constant(norm, 1, layers, size)
    init.normal("vision_wqkv", layers, 3 * size, size)
    init.constant("vision_wqkv_bias", 0, layers, 3 * size)
    init.normal("vision_wo", layers, size, size, gain=HALF)
    init.constant("vision_wo_bias", 0, layers, size)
    init.normal("vision_w1", layers, 2 * inner, size)
    init.normal("vision_w2", layers, size, inner, gain=HALF)
    init.constant("vision_norm", 1, size)
    init.normal("aligner_w1", hidden, size * config.downsample_ratio ** 2)
    init.constant("aligner_b1", 0, hidden)
    init.normal("aligner_w2", hidden, hidden)
    init.constant("aligner_b2", 0, hidden)
    for name in ("image_start", "image_end", "image_newline"):
        init.normal(name, hidden, std=EMBED_STD)


def add_draft(init, config):
    hidden = config.hidden_size
    add_layers(init, config, "draft_", config.num_nextn_predict_layers, config.dspark_n_routed_experts)
    init.normal("draft_main_proj", hidden, hidden * len(config.dspark_target_layer_ids))
    init.constant("draft_main_norm", 1, hidden)
    init.constant("draft_norm", 1, hidden)
    init.normal("draft_markov_embed", config.vocab_size, config.dspark_markov_rank, std=EMBED_STD)
    init.constant("draft_markov_head", 0, config.vocab_size, config.dspark_markov_rank)
    init.constant("draft_confidence", 0, 1, hidden + config.dspark_markov_rank)


def initial(config, seed=0):
    """-> (trained parameters, router biases), dicts of fp32 tensors."""
    init = Initialiser(seed)
    init.normal("embed", config.vocab_size, config.hidden_size, std=EMBED_STD)
    init.normal("head", config.vocab_size, config.hidden_size, gain=HALF)
    init.constant("norm", 1, config.hidden_size)
    add_layers(init, config, "", config.num_hidden_layers, config.n_routed_experts)
    add_sparse_parts(init, config)
    add_engram(init, config)
    add_vision(init, config)
    add_draft(init, config)
    biases = {}
    for prefix, layers, experts in (("", config.num_hidden_layers, config.n_routed_experts),
                                    ("draft_", config.num_nextn_predict_layers, config.dspark_n_routed_experts)):
        biases[prefix + "gate_bias"] = torch.zeros(layers, experts)
        biases[prefix + "gate_bias_image"] = torch.zeros(layers, experts)
    return init.values, biases


def layer_tensors(values, biases, prefix, index, path):
    """Released names of one block: (name, format, tensor)."""
    get = lambda name: values[prefix + name][index]
    for norm in ("attn_norm", "ffn_norm"):
        yield f"{path}{norm}.weight", "bf16", get(norm)
    for site in ("attn", "ffn"):
        for part in ("fn", "base", "scale"):
            yield f"{path}hc_{site}_{part}", "f32", get(f"hc_{site}_{part}")
    attention = path + "attn."
    yield attention + "attn_sink", "f32", get("attn_sink")
    for name in ("wq_a", "wq_b", "wkv", "wo_a", "wo_b"):
        yield attention + name, "fp8", get(name)
    for norm in ("q_norm", "kv_norm"):
        yield f"{attention}{norm}.weight", "bf16", get(norm)
    ffn = path + "ffn."
    yield ffn + "gate.weight", "bf16", get("gate")
    yield ffn + "gate.bias", "f32", biases[prefix + "gate_bias"][index]
    yield ffn + "gate.bias_vl", "f32", biases[prefix + "gate_bias_image"][index]
    for expert, (w13, w2) in enumerate(zip(get("expert_w13"), get("expert_w2"))):
        yield f"{ffn}experts.{expert}.w1", "fp4", w13.chunk(2)[0]
        yield f"{ffn}experts.{expert}.w2", "fp4", w2
        yield f"{ffn}experts.{expert}.w3", "fp4", w13.chunk(2)[1]
    yield ffn + "shared_experts.w1", "fp8", get("shared_w13").chunk(2)[0]
    yield ffn + "shared_experts.w2", "fp8", get("shared_w2")
    yield ffn + "shared_experts.w3", "fp8", get("shared_w13").chunk(2)[1]


def sparse_tensors(values, config, layer, path):
    attention = path + "attn."
    if layer in config.kv_source_layer_ids:
        owner = config.kv_source_layer_ids.index(layer)
        yield attention + "compressor.wkv.weight", "bf16", values["compressor_wkv"][owner]
        if config.compress_ratios[layer] > 1:
            yield attention + "compressor.wgate.weight", "bf16", values["compressor_wgate"][owner]
        yield attention + "compressor.norm.weight", "bf16", values["compressor_norm"][owner]
        yield attention + "indexer.wk.weight", "bf16", values["indexer_wk"][owner]
        yield attention + "indexer.k_norm.weight", "bf16", values["indexer_k_norm"][owner]
    if layer in config.index_source_layer_ids:
        source = config.index_source_layer_ids.index(layer)
        yield attention + "indexer.wq_b", "fp8", values["indexer_wq_b"][source]
        yield attention + "indexer.weights_proj.weight", "bf16", values["indexer_weights_proj"][source]


def engram_tensors(values, config, layer, path):
    place = config.engram_layer_ids.index(layer)
    yield path + "engram.embed", "table", values[f"engram_table_{place}"]
    yield path + "engram.wkv", "fp8", values["engram_wkv"][place]
    yield path + "engram.q_weight", "bf16", values["engram_gain"][place]
    yield path + "engram.k_weight", "bf16", torch.ones_like(values["engram_gain"][place])


def vision_tensors(values, config):
    yield "vision.patch_embed.proj.weight", "bf16", values["patch_weight"]
    yield "vision.patch_embed.proj.bias", "bf16", values["patch_bias"]
    for layer in range(config.vision_layers):
        path = f"vision.blocks.{layer}."
        for ours, theirs in (("norm1", "norm1.weight"), ("norm2", "norm2.weight"), ("wqkv", "attn.wqkv.weight"),
                             ("wqkv_bias", "attn.wqkv.bias"), ("wo", "attn.wo.weight"), ("wo_bias", "attn.wo.bias"),
                             ("w1", "mlp.w1.weight"), ("w2", "mlp.w2.weight")):
            yield path + theirs, "bf16", values["vision_" + ours][layer]
    yield "vision.norm.weight", "bf16", values["vision_norm"]
    for number in (1, 2):
        yield f"aligner.w{number}.weight", "bf16", values[f"aligner_w{number}"]
        yield f"aligner.w{number}.bias", "bf16", values[f"aligner_b{number}"]
    for name in ("image_start", "image_end", "image_newline"):
        yield name, "bf16", values[name]


def draft_tensors(values, biases, config):
    last = config.num_nextn_predict_layers - 1
    for stage in range(last + 1):
        yield from layer_tensors(values, biases, "draft_", stage, f"mtp.{stage}.")
    yield "mtp.0.main_proj", "fp8", values["draft_main_proj"]
    yield "mtp.0.main_norm.weight", "bf16", values["draft_main_norm"]
    yield f"mtp.{last}.norm.weight", "bf16", values["draft_norm"]
    yield f"mtp.{last}.markov_head.embed.weight", "bf16", values["draft_markov_embed"]
    yield f"mtp.{last}.markov_head.head.weight", "bf16", values["draft_markov_head"]
    yield f"mtp.{last}.confidence_head.proj.weight", "bf16", values["draft_confidence"]


def released_tensors(values, biases, config):
    """All tensors as (released name without .weight for quantised ones, format, fp32 tensor)."""
    yield "embed.weight", "bf16", values["embed"]
    for layer in range(config.num_hidden_layers):
        path = f"layers.{layer}."
        yield from layer_tensors(values, biases, "", layer, path)
        yield from sparse_tensors(values, config, layer, path)
        if layer in config.engram_layer_ids:
            yield from engram_tensors(values, config, layer, path)
    yield "norm.weight", "bf16", values["norm"]
    yield "head.weight", "bf16", values["head"]
    yield from draft_tensors(values, biases, config)
    yield from vision_tensors(values, config)


def take_from_released(values, biases, config, weights):
    """Copies dequantised weights of a checkpoint into the training tensors; what the checkpoint lacks stays as it is."""
    for name, _, tensor in released_tensors(values, biases, config):
        if name in weights and not name.endswith("engram.k_weight"):
            tensor.copy_(weights[name].float())
