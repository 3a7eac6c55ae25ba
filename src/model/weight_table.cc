// SPDX-License-Identifier: MIT
#include "model/weight_table.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

namespace deepinfer {
namespace {

// Walks the structs of weights.h in the order of the specification's table; each line below is one tensor.
class Declaration {
 public:
  Declaration(const ModelConfig& config, WeightViews& views) : c_(config), w_(views) {}

  std::vector<WeightRow> all() {
    in(WeightPart::kEmbed).matrix("embed.weight", w_.embed, c_.vocab_size, c_.hidden);
    in(WeightPart::kHead).matrix("head.weight", w_.head, c_.vocab_size, c_.hidden);
    in(WeightPart::kNorms).vector("norm.weight", w_.norm, c_.hidden);
    w_.layers.resize(static_cast<size_t>(c_.num_layers));
    for (int l = 0; l < c_.num_layers; ++l) backbone_layer(l, w_.layers[static_cast<size_t>(l)]);
    layer_ = -1;
    draft();
    layer_ = -1;
    if (c_.vision) vision(*c_.vision);
    return std::move(rows_);
  }

 private:
  // ---- parts

  void backbone_layer(int l, LayerWeights& w) {
    prefix_ = "layers." + std::to_string(l) + ".";
    layer_ = l;
    block(w, c_.num_experts);
    if (c_.engram_index(l) < 0) return;
    const EngramConfig& e = c_.engram;
    in(WeightPart::kEngramTables)
        .table("engram.embed", w.engram.table, e.num_rows[static_cast<size_t>(c_.engram_index(l))], e.head_dim);
    in(WeightPart::kEngramLinears).fp8("engram.wkv", w.engram.wkv, (c_.num_streams + 1) * c_.hidden, e.row_columns());
    matrix("engram.q_weight", w.engram.q_weight, c_.num_streams, c_.hidden);
    matrix("engram.k_weight", w.engram.k_weight, c_.num_streams, c_.hidden);
  }

  void block(LayerWeights& w, int num_experts) {
    in(WeightPart::kNorms).vector("attn_norm.weight", w.attention_norm, c_.hidden);
    vector("ffn_norm.weight", w.moe_norm, c_.hidden);
    in(WeightPart::kStreamMix).stream_mix("hc_attn", w.attention_mix);
    stream_mix("hc_ffn", w.moe_mix);
    attention(w.attention);
    moe(w.moe, num_experts);
  }

  void stream_mix(const std::string& name, StreamMixWeights& w) {
    matrix(name + "_fn", w.fn, c_.num_mix_coefficients(), c_.num_streams * c_.hidden);
    vector(name + "_base", w.base, c_.num_mix_coefficients());
    vector(name + "_scale", w.scale, 3);
  }

  void attention(AttentionWeights& w) {
    const int64_t all_heads = int64_t{c_.num_heads} * c_.head_dim, all_groups = c_.output_groups * c_.output_rank;
    in(WeightPart::kAttention).vector("attn.attn_sink", w.sink, c_.num_heads);
    fp8("attn.wq_a", w.wq_a, c_.q_rank, c_.hidden);
    vector("attn.q_norm.weight", w.q_norm, c_.q_rank);
    fp8("attn.wq_b", w.wq_b, all_heads, c_.q_rank);
    fp8("attn.wkv", w.wkv, c_.head_dim, c_.hidden);
    vector("attn.kv_norm.weight", w.kv_norm, c_.head_dim);
    fp8("attn.wo_a", w.wo_a, all_groups, all_heads / c_.output_groups);
    fp8("attn.wo_b", w.wo_b, c_.hidden, all_groups);
    in(WeightPart::kCompressorAndIndexer);
    if (c_.is_kv_source(layer_)) {
      matrix("attn.compressor.wkv.weight", w.compressor.wkv, c_.head_dim, c_.hidden);
      if (c_.compress_ratio(layer_) > 1)
        matrix("attn.compressor.wgate.weight", w.compressor.wgate, c_.head_dim, c_.hidden);
      vector("attn.compressor.norm.weight", w.compressor.norm, c_.head_dim);
      matrix("attn.indexer.wk.weight", w.indexer.wk, c_.index_head_dim, c_.head_dim);
      vector("attn.indexer.k_norm.weight", w.indexer.k_norm, c_.index_head_dim);
    }
    if (c_.is_index_source(layer_)) {
      fp8("attn.indexer.wq_b", w.indexer.wq_b, int64_t{c_.index_heads} * c_.index_head_dim, c_.q_rank);
      matrix("attn.indexer.weights_proj.weight", w.indexer.weights_proj, c_.index_heads, c_.hidden);
    }
  }

  void moe(MoeWeights& w, int num_experts) {
    in(WeightPart::kRouter).matrix("ffn.gate.weight", w.gate, num_experts, c_.hidden);
    vector("ffn.gate.bias", w.bias, num_experts);
    if (c_.vision) vector("ffn.gate.bias_vl", w.image_bias, num_experts);
    in(WeightPart::kExperts);
    w.experts.resize(static_cast<size_t>(num_experts));
    for (expert_ = 0; expert_ < num_experts; ++expert_) {
      ExpertWeights& expert = w.experts[static_cast<size_t>(expert_)];
      const std::string name = "ffn.experts." + std::to_string(expert_) + ".";
      fp4(name + "w1", expert.w1, c_.expert_inner, c_.hidden);
      fp4(name + "w2", expert.w2, c_.hidden, c_.expert_inner);
      fp4(name + "w3", expert.w3, c_.expert_inner, c_.hidden);
    }
    expert_ = -1;
    in(WeightPart::kSharedExperts).fp8("ffn.shared_experts.w1", w.shared.w1, c_.expert_inner, c_.hidden);
    fp8("ffn.shared_experts.w2", w.shared.w2, c_.hidden, c_.expert_inner);
    fp8("ffn.shared_experts.w3", w.shared.w3, c_.expert_inner, c_.hidden);
  }

  void draft() {
    const DraftConfig& d = c_.draft;
    DraftWeights& w = w_.draft;
    w.layers.resize(static_cast<size_t>(d.num_layers));
    if (d.num_layers == 0) return;
    only_ = WeightPart::kDraft;
    for (int m = 0; m < d.num_layers; ++m) {
      prefix_ = "mtp." + std::to_string(m) + ".";
      layer_ = c_.num_layers + m;
      block(w.layers[static_cast<size_t>(m)], d.num_experts);
      if (m == 0) {
        fp8("main_proj", w.main_proj, c_.hidden, c_.hidden * static_cast<int64_t>(d.target_layers.size()));
        vector("main_norm.weight", w.main_norm, c_.hidden);
      }
    }
    vector("norm.weight", w.norm, c_.hidden);
    matrix("markov_head.embed.weight", w.markov_embed, c_.vocab_size, d.markov_rank);
    matrix("markov_head.head.weight", w.markov_head, c_.vocab_size, d.markov_rank);
    row("confidence_head.proj.weight", DType::kBF16, {1, c_.hidden + d.markov_rank}, &w.confidence.data);
    w.confidence.size = c_.hidden + d.markov_rank;
    only_ = std::nullopt;
  }

  void vision(const VisionConfig& v) {
    VisionWeights& w = w_.vision;
    in(WeightPart::kVision);
    prefix_ = "vision.";
    linear("patch_embed.proj", w.patch_embed, w.patch_embed_bias, v.hidden, v.patch_columns());
    w.blocks.resize(static_cast<size_t>(v.num_layers));
    for (int b = 0; b < v.num_layers; ++b) {
      VisionBlockWeights& block = w.blocks[static_cast<size_t>(b)];
      prefix_ = "vision.blocks." + std::to_string(b) + ".";
      vector("norm1.weight", block.norm1, v.hidden);
      linear("attn.wqkv", block.wqkv, block.wqkv_bias, 3 * v.hidden, v.hidden);
      linear("attn.wo", block.wo, block.wo_bias, v.hidden, v.hidden);
      vector("norm2.weight", block.norm2, v.hidden);
      matrix("mlp.w1.weight", block.mlp_w1, 2 * v.inner, v.hidden);
      matrix("mlp.w2.weight", block.mlp_w2, v.hidden, v.inner);
    }
    prefix_ = "";
    vector("vision.norm.weight", w.norm, v.hidden);
    linear("aligner.w1", w.aligner_w1, w.aligner_w1_bias, c_.hidden, v.aligner_in());
    linear("aligner.w2", w.aligner_w2, w.aligner_w2_bias, c_.hidden, c_.hidden);
    vector("image_start", w.image_start, c_.hidden);
    vector("image_end", w.image_end, c_.hidden);
    vector("image_newline", w.image_newline, c_.hidden);
  }

  // ---- one tensor, or a matrix with its scales

  Declaration& in(WeightPart part) {
    part_ = only_.value_or(part);
    return *this;
  }

  template <typename Pointer>
  void row(const std::string& name, DType dtype, std::vector<int64_t> shape, Pointer* view, bool is_scale = false) {
    rows_.push_back({prefix_ + name, dtype, std::move(shape), part_, layer_, expert_, is_scale, view, nullptr});
  }

  void fp8(const std::string& name, Fp8Matrix& m, int64_t out, int64_t in) {
    m.out = out, m.in = in;
    row(name + ".weight", DType::kF8E4M3, {out, in}, &m.codes);
    if (can_have_planes(out, in)) rows_.back().layout = &m.layout;  // its scales stand as they do in rows
    row(name + ".scale", DType::kF8E8M0, {num_scale_blocks(out), num_scale_blocks(in)}, &m.scales, true);
  }
  void fp4(const std::string& name, Fp4Matrix& m, int64_t out, int64_t in) {
    m.out = out, m.in = in;
    row(name + ".weight", DType::kI8, {out, in / 2}, &m.codes);
    if (can_have_planes(out, in)) rows_.back().layout = &m.layout;
    row(name + ".scale", DType::kF8E8M0, {out, in / kScaleBlock}, &m.scales, true);
    if (can_have_planes(out, in)) rows_.back().layout = &m.layout;
  }
  void table(const std::string& name, Fp8Rows& t, int64_t num_rows, int64_t columns) {
    t.num_rows = num_rows, t.columns = columns;
    row(name + ".weight", DType::kF8E4M3, {num_rows, columns}, &t.codes);
    row(name + ".scale", DType::kF8E8M0, {num_rows, columns / kScaleBlock}, &t.scales, true);
  }
  void matrix(const std::string& name, Bf16Matrix& m, int64_t out, int64_t in) {
    m.out = out, m.in = in;
    row(name, DType::kBF16, {out, in}, &m.data);
  }
  void matrix(const std::string& name, F32Matrix& m, int64_t out, int64_t in) {
    m.out = out, m.in = in;
    row(name, DType::kF32, {out, in}, &m.data);
  }
  void vector(const std::string& name, Bf16Vector& v, int64_t size) {
    v.size = size;
    row(name, DType::kBF16, {size}, &v.data);
  }
  void vector(const std::string& name, F32Vector& v, int64_t size) {
    v.size = size;
    row(name, DType::kF32, {size}, &v.data);
  }
  void linear(const std::string& name, Bf16Matrix& m, Bf16Vector& bias, int64_t out, int64_t in) {
    matrix(name + ".weight", m, out, in);
    vector(name + ".bias", bias, out);
  }

  const ModelConfig& c_;
  WeightViews& w_;
  std::vector<WeightRow> rows_;
  std::string prefix_;
  WeightPart part_ = WeightPart::kNorms;
  std::optional<WeightPart> only_;  // inside the draft head everything counts as draft
  int layer_ = -1, expert_ = -1;
};

// In runs without an early end, which the compiler can vectorise.
template <typename Element, typename IsNan>
std::optional<int64_t> find_element(std::span<const uint8_t> bytes, IsNan is_nan) {
  constexpr size_t kRun = 4096;
  const size_t num_elements = bytes.size() / sizeof(Element);
  Element run[kRun];
  for (size_t begin = 0; begin < num_elements; begin += kRun) {
    const size_t n = std::min(kRun, num_elements - begin);
    std::memcpy(run, bytes.data() + begin * sizeof(Element), n * sizeof(Element));
    unsigned found = 0;
    for (size_t i = 0; i < n; ++i) found |= is_nan(run[i]) ? 1u : 0u;
    if (found) return static_cast<int64_t>(begin) + (std::find_if(run, run + n, is_nan) - run);
  }
  return std::nullopt;
}

}  // namespace

const char* to_string(WeightPart part) {
  static constexpr const char* kNames[kNumWeightParts] = {"routed experts",
                                                          "attention core",
                                                          "shared experts",
                                                          "embed",
                                                          "head",
                                                          "router",
                                                          "compressor + indexer",
                                                          "mHC",
                                                          "block + final norms",
                                                          "Engram tables",
                                                          "Engram linears",
                                                          "DSpark",
                                                          "vision + aligner + delimiters"};
  return kNames[static_cast<int>(part)];
}

int64_t WeightRow::num_elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}
int64_t WeightRow::size_bytes() const { return num_elements() * static_cast<int64_t>(deepinfer::size_bytes(dtype)); }
int64_t WeightRow::num_parameters() const { return is_scale ? 0 : num_elements() * (dtype == DType::kI8 ? 2 : 1); }

std::vector<WeightRow> declare_weights(const ModelConfig& config, WeightViews& views) {
  return Declaration(config, views).all();
}

const StoredTensor* find_stored(const Checkpoint& checkpoint, const WeightRow& row) {
  const StoredTensor* stored = checkpoint.find(row.name);
  return stored || !row.layout ? stored : checkpoint.find(row.name + std::string(kPlanesSuffix));
}

WeightLayout stored_layout(const StoredTensor& tensor, const WeightRow& row) {
  return tensor.info.name.size() > row.name.size() ? WeightLayout::kPlanes : WeightLayout::kRows;
}

std::vector<std::string> check_inventory(const std::vector<WeightRow>& table, const Checkpoint& checkpoint) {
  std::vector<std::string> problems;
  std::unordered_set<std::string_view> declared;
  declared.reserve(table.size());
  const WeightRow* codes = nullptr;  // of the matrix whose scales may come next
  WeightLayout layout = WeightLayout::kRows;
  for (const WeightRow& row : table) {
    const StoredTensor* stored = find_stored(checkpoint, row);
    if (!stored) {
      problems.push_back("tensor " + row.name + " is missing");
      continue;
    }
    declared.insert(stored->info.name);
    if (stored->info.dtype != row.dtype || stored->info.shape != row.shape)
      problems.push_back("tensor " + stored->info.name + " is " + std::string(to_string(stored->info.dtype)) + " " +
                         shape_to_string(stored->info.shape) + ", expected " + std::string(to_string(row.dtype)) + " " +
                         shape_to_string(row.shape));
    if (row.layout && codes && codes->layout == row.layout && stored_layout(*stored, row) != layout)
      problems.push_back("tensor " + stored->info.name + " stands in another layout than " + codes->name);
    codes = &row;
    layout = stored_layout(*stored, row);
  }
  for (const StoredTensor& stored : checkpoint.tensors())
    if (!declared.contains(stored.info.name))
      problems.push_back("tensor " + stored.info.name + " of " + checkpoint.shard_files()[stored.shard] +
                         " is unknown: the configuration has no place for it");
  return problems;
}

std::optional<int64_t> find_nan(DType dtype, std::span<const uint8_t> bytes) {
  switch (dtype) {
    case DType::kF8E8M0: {
      const void* at = bytes.empty() ? nullptr : std::memchr(bytes.data(), 0xFF, bytes.size());
      return at ? std::optional(static_cast<const uint8_t*>(at) - bytes.data()) : std::nullopt;
    }
    case DType::kF8E4M3: return find_element<uint8_t>(bytes, [](uint8_t x) { return (x & 0x7F) == 0x7F; });
    case DType::kBF16: return find_element<uint16_t>(bytes, [](uint16_t x) { return (x & 0x7FFF) > 0x7F80; });
    case DType::kF32: return find_element<uint32_t>(bytes, [](uint32_t x) { return (x & 0x7FFFFFFF) > 0x7F800000; });
    default: return std::nullopt;
  }
}

}  // namespace deepinfer
