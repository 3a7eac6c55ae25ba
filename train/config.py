"""The configuration of the mini model, and reading any configuration in the released layout."""
import math
from dataclasses import dataclass, field

from . import engram

VOCAB_SIZE = 6144
ROPE_SCALING = {"rope_type": "yarn", "factor": 16, "beta_fast": 32, "beta_slow": 1,
                "original_max_position_embeddings": 65536}


@dataclass
class Config:
    """Field names are those of text_config and vision_config; see the specification for their meaning."""
    vocab_size: int = VOCAB_SIZE
    hidden_size: int = 256
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    head_dim: int = 64
    qk_rope_head_dim: int = 16
    q_lora_rank: int = 128
    o_groups: int = 2
    o_lora_rank: int = 128
    sliding_window: int = 128
    rms_norm_eps: float = 1e-20
    swiglu_limit: float = 10.0
    moe_intermediate_size: int = 128
    n_routed_experts: int = 16
    num_experts_per_tok: int = 2
    routed_scaling_factor: float = 1.5
    compress_ratios: tuple = (0, 0, 2, 2, 1, 1, 1, 1, 0, 0, 0)
    kv_source_layer_ids: tuple = (2, 4)
    index_source_layer_ids: tuple = (2, 4, 6)
    candidate_source_layer_id: int = 4
    candidate_topk_blocks: int = 128
    candidate_block_size: int = 8
    index_n_heads: int = 4
    index_head_dim: int = 32
    index_topk: int = 512
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    max_position_embeddings: int = 32768
    rope_scaling: dict = field(default_factory=lambda: dict(ROPE_SCALING))
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    engram_layer_ids: tuple = (1, 3)
    engram_max_ngram_size: int = 4
    engram_vocab_size: int = 8192
    engram_n_heads: int = 2
    engram_head_dim: int = 32
    engram_pad_token_id: int = 2
    engram_compressed_vocab_size: int = 0          # follows from the tokenizer
    num_nextn_predict_layers: int = 3
    dspark_block_size: int = 5
    dspark_noise_token_id: int = 0                 # follows from the tokenizer
    dspark_target_layer_ids: tuple = (5, 6, 7)
    dspark_markov_rank: int = 64
    dspark_n_routed_experts: int = 8
    dspark_num_experts_per_tok: int = 2
    image_token_id: int = 0                        # follows from the tokenizer
    vision_layers: int = 4
    vision_hidden_size: int = 128
    vision_heads: int = 4
    vision_intermediate_size: int = 256
    patch_size: int = 14
    downsample_ratio: int = 3
    max_image_tokens: int = 44
    min_pixels: int = 126 * 126
    vision_rope_theta: float = 10000.0
    max_wh_ratio: float = None

    @property
    def engram_primes(self):
        return engram.primes(len(self.engram_layer_ids), self.engram_max_ngram_size, self.engram_n_heads,
                             self.engram_vocab_size)

    def kv_source_of(self, layer):
        return max(source for source in self.kv_source_layer_ids if source <= layer)

    def index_source_of(self, layer):
        return max(source for source in self.index_source_layer_ids if source <= layer)

    def rope_frequencies(self, compressed):
        """Angles per position step; layers with a compressed cache use the larger base and the long-context ramp."""
        pairs = self.qk_rope_head_dim // 2
        base = self.compress_rope_theta if compressed else self.rope_theta
        plain = [base ** (-i / pairs) for i in range(pairs)]
        if not compressed:
            return plain
        scaling = self.rope_scaling

        def pair_turning(turns):
            return pairs * math.log(scaling["original_max_position_embeddings"] / (2 * math.pi * turns)) / math.log(base)

        low = max(math.floor(pair_turning(scaling["beta_fast"])), 0)
        high = min(math.ceil(pair_turning(scaling["beta_slow"])), self.qk_rope_head_dim - 1)
        ramp = [min(max((i - low) / max(high - low, 1e-3), 0.0), 1.0) for i in range(pairs)]
        return [f / scaling["factor"] * r + f * (1 - r) for f, r in zip(plain, ramp)]


TEXT_FIELDS = """vocab_size hidden_size num_hidden_layers num_attention_heads head_dim qk_rope_head_dim q_lora_rank o_groups
o_lora_rank sliding_window rms_norm_eps swiglu_limit moe_intermediate_size n_routed_experts num_experts_per_tok
routed_scaling_factor compress_ratios kv_source_layer_ids index_source_layer_ids candidate_source_layer_id
candidate_topk_blocks candidate_block_size index_n_heads index_head_dim index_topk rope_theta compress_rope_theta
max_position_embeddings rope_scaling hc_mult hc_sinkhorn_iters hc_eps engram_layer_ids engram_max_ngram_size
engram_vocab_size engram_n_heads engram_head_dim engram_pad_token_id engram_compressed_vocab_size
num_nextn_predict_layers dspark_block_size dspark_noise_token_id dspark_target_layer_ids dspark_markov_rank
dspark_n_routed_experts dspark_num_experts_per_tok""".split()
VISION_FIELDS = {"vision_layers": "num_hidden_layers", "vision_hidden_size": "hidden_size",
                 "vision_heads": "num_attention_heads", "vision_intermediate_size": "intermediate_size",
                 "patch_size": "patch_size", "downsample_ratio": "downsample_ratio",
                 "max_image_tokens": "max_image_tokens", "min_pixels": "min_pixels", "vision_rope_theta": "rope_theta",
                 "max_wh_ratio": "max_wh_ratio"}


def plain(value):
    return list(value) if isinstance(value, tuple) else value


def mini(special_ids, num_compressed_ids, **changes):
    """The mini model for a tokenizer."""
    return Config(engram_compressed_vocab_size=num_compressed_ids, image_token_id=special_ids["<｜deepseek_image｜>"],
                  dspark_noise_token_id=special_ids["<｜System｜>"], **changes)


def to_released(config):
    """The nested config.json of the released layout."""
    text = {"model_type": "deepseek_v41_text"}
    text.update({name: plain(getattr(config, name)) for name in TEXT_FIELDS})
    text["rope_theta"], text["compress_rope_theta"] = int(config.rope_theta), int(config.compress_rope_theta)
    text.update(num_key_value_heads=1, hidden_act="silu", n_shared_experts=1, scoring_func="sqrtsoftplus",
                topk_method="noaux_tc", norm_topk_prob=True,
                engram_num_embeddings=[sum(map(sum, layer)) for layer in config.engram_primes],
                attention_bias=False, attention_dropout=0.0, initializer_range=0.02, use_cache=True,
                tie_word_embeddings=False)
    vision = {"model_type": "deepseek_v41_vision"}
    vision.update({theirs: getattr(config, ours) for ours, theirs in VISION_FIELDS.items()})
    vision["rope_theta"] = int(config.vision_rope_theta)
    return {"model_type": "deepseek_v41", "architectures": ["DeepseekV41ForCausalLM"], "dtype": "bfloat16",
            "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2, "image_token_id": config.image_token_id,
            "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
                                    "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
            "text_config": text, "vision_config": vision}


def from_released(document):
    text, vision = document["text_config"], document["vision_config"]
    values = {name: tuple(text[name]) if isinstance(text[name], list) else text[name] for name in TEXT_FIELDS}
    values.update({ours: vision[theirs] for ours, theirs in VISION_FIELDS.items()})
    return Config(image_token_id=document["image_token_id"], **values)
