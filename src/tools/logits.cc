// SPDX-License-Identifier: MIT
// deepinfer logits: exact numbers for given token ids. Replay is off: every position's logits are asked for.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <string>

#include "engine/exact_run.h"
#include "engine/image_embedding.h"
#include "serve/loaded_model.h"
#include "tensor/safetensors.h"
#include "tools/command.h"
#include "tools/engine_target.h"
#include "tools/interrupt.h"
#include "tools/model_options.h"

namespace deepinfer {
namespace {

struct LogitsArguments {
  ModelOptions model;
  std::string input, output, mode = "single";
  bool all_logits = false, published_key_slot = false;
};

struct Input {
  std::vector<std::string> names;
  std::vector<ExactPrompt> prompts;
};

Result<std::vector<TokenId>> tokens_of(const SafetensorsFile& file, const std::string& name, int64_t vocab) {
  if (const TensorInfo* info = file.find(name); info && info->shape.size() != 1)
    return invalid_argument(fmt::format("{}: expected one axis, found {}", name, shape_to_string(info->shape)));
  ASSIGN_OR_RETURN(const auto values, file.integers(name));
  std::vector<TokenId> tokens;
  for (const int64_t value : values) {
    if (value < 0 || value >= vocab)
      return invalid_argument(fmt::format("{}[{}]: id {} of a vocabulary of {}", name, tokens.size(), value, vocab));
    tokens.push_back(static_cast<TokenId>(value));
  }
  return tokens;
}

Status check_lengths(const std::string& name, const ExactPrompt& prompt) {
  if (prompt.tokens.empty()) return invalid_argument(name + ".tokens: expected at least one token");
  if (!prompt.draft_anchors.empty() && prompt.draft_anchors.size() != prompt.decode_tokens.size())
    return invalid_argument(fmt::format("{}.draft_anchor: {} anchors for {} decode tokens", name,
                                        prompt.draft_anchors.size(), prompt.decode_tokens.size()));
  return {};
}

Result<std::vector<RgbImage>> images_of(const SafetensorsFile& file, const std::string& name) {
  std::vector<RgbImage> images;
  for (int i = 0; const TensorInfo* info = file.find(fmt::format("{}.image{}", name, i)); ++i) {
    if (info->dtype != DType::kU8 || info->shape.size() != 3 || info->shape[2] != 3 || info->num_elements() == 0)
      return invalid_argument(fmt::format("{}: expected U8 [height, width, 3], found {} {}", info->name,
                                          to_string(info->dtype), shape_to_string(info->shape)));
    RgbImage image(info->shape[1], info->shape[0]);
    const auto bytes = file.bytes(*info);
    std::copy(bytes.begin(), bytes.end(), image.pixels.data());
    images.push_back(std::move(image));
  }
  return images;
}

Status place(const LoadedModel& model, const Target& target, std::span<const RgbImage> images, ThreadPool& pool,
             ExactPrompt& prompt) {
  ASSIGN_OR_RETURN(ImageEmbedder embedder, ImageEmbedder::create(*model.weights, target));
  ASSIGN_OR_RETURN(const auto spans, embedder.embed(images, &pool));
  const ModelConfig& config = model.weights->config();
  ASSIGN_OR_RETURN(PlacedImages placed, place_images(prompt.tokens, config.image_token_id, spans, config.hidden));
  prompt.tokens = std::move(placed.tokens);
  prompt.images = std::move(placed.images);
  return {};
}

Result<Input> read_input(const LogitsArguments& arguments, const LoadedModel& model, const Target& target) {
  ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::read(arguments.input));
  const int64_t vocab = model.weights->config().vocab_size;
  ThreadPool pool(static_cast<int>(arguments.model.num_threads));
  Input input;
  for (const TensorInfo& info : file.tensors()) {
    constexpr std::string_view kSuffix = ".tokens";
    if (!info.name.ends_with(kSuffix)) continue;
    const std::string name = info.name.substr(0, info.name.size() - kSuffix.size());
    ExactPrompt prompt{.keeps_all_logits = arguments.all_logits};
    ASSIGN_OR_RETURN(prompt.tokens, tokens_of(file, info.name, vocab));
    if (file.find(name + ".decode_tokens")) {
      ASSIGN_OR_RETURN(prompt.decode_tokens, tokens_of(file, name + ".decode_tokens", vocab));
    }
    if (file.find(name + ".draft_anchor")) {
      ASSIGN_OR_RETURN(prompt.draft_anchors, tokens_of(file, name + ".draft_anchor", vocab));
    }
    TRY(check_lengths(name, prompt));
    ASSIGN_OR_RETURN(const std::vector<RgbImage> images, images_of(file, name));
    if (!images.empty()) TRY(place(model, target, images, pool, prompt).prefixed(name));
    input.names.push_back(name);
    input.prompts.push_back(std::move(prompt));
  }
  if (input.names.empty()) return invalid_argument(arguments.input + ": no tensor is named NAME.tokens");
  return input;
}

Result<RunShape> parse_mode(const std::string& mode) {
  if (mode == "single") return RunShape{};
  if (mode == "stepwise") return RunShape{.chunk = 1};
  if (mode == "batched") return RunShape{.batched = true};
  int64_t chunk = 0;
  constexpr std::string_view kChunked = "chunked:";
  const char* end = mode.data() + mode.size();
  if (mode.starts_with(kChunked) && std::from_chars(mode.data() + kChunked.size(), end, chunk).ptr == end && chunk > 0)
    return RunShape{.chunk = chunk};
  return invalid_argument("--mode " + mode + ": expected single, chunked:N (N > 0), stepwise or batched");
}

// A single pass takes a whole prompt where its logits fit into 1 GiB; longer prompts are cut, which changes no bit.
EngineOptions options_for(const LogitsArguments& arguments, const Input& input, const RunShape& shape, int64_t vocab,
                          const Target& target, int64_t expert_bytes_max) {
  int64_t longest = 1, blocks_longest = 1, blocks_all = 0;
  for (const ExactPrompt& prompt : input.prompts) {
    const int64_t length = static_cast<int64_t>(prompt.tokens.size()),
                  all = length + static_cast<int64_t>(prompt.decode_tokens.size());
    longest = std::max(longest, length);
    blocks_longest = std::max(blocks_longest, BlockTable::blocks_for(all));
    blocks_all += BlockTable::blocks_for(all);
  }
  EngineOptions options;
  options.num_threads = static_cast<int>(arguments.model.num_threads);
  options.target = target;
  options.expert_bytes_max = expert_bytes_max;
  options.lanes_max = shape.batched ? std::min<int64_t>(64, static_cast<int64_t>(input.prompts.size())) : 1;
  const int64_t wanted = shape.batched ? 512 : shape.chunk > 0 ? shape.chunk : longest;
  options.rows_max =
      std::min<int64_t>(std::min<int64_t>(wanted, 4096), std::max<int64_t>(64, (int64_t{1} << 28) / vocab));
  options.rows_max = std::max(options.rows_max, options.lanes_max);
  options.logits_rows_max = options.rows_max;
  options.blocks_max = shape.batched ? std::max(blocks_longest, std::min<int64_t>(blocks_all, 4096)) : blocks_longest;
  options.reproduces_published_key_slot = arguments.published_key_slot;
  return options;
}

void add_numbers(SafetensorsWriter& writer, const std::string& name, const ExactPrompt& prompt,
                 const ExactNumbers& numbers, int64_t vocab, int64_t block) {
  const int64_t num_prompt = static_cast<int64_t>(numbers.argmax.size()),
                num_decode = static_cast<int64_t>(prompt.decode_tokens.size());
  writer.add(name + ".logits", {vocab}, numbers.logits);
  writer.add(name + ".argmax", {num_prompt}, numbers.argmax);
  if (!numbers.all_logits.empty()) writer.add(name + ".all_logits", {num_prompt, vocab}, numbers.all_logits);
  if (num_decode == 0) return;
  writer.add(name + ".decode_logits", {num_decode, vocab}, numbers.decode_logits);
  if (numbers.draft_ids.empty()) return;
  writer.add(name + ".draft_ids", {num_decode, block}, numbers.draft_ids);
  writer.add(name + ".draft_conf", {num_decode, block}, numbers.draft_confidences);
  if (!numbers.draft_logits.empty())
    writer.add(name + ".draft_logits", {num_decode, block, vocab}, numbers.draft_logits);
}

Status logits(const LogitsArguments& arguments, const RunShape& shape) {
  ASSIGN_OR_RETURN(const Target target, engine_target(arguments.model));
  ASSIGN_OR_RETURN(const LoadedModel model, load_model(arguments.model));
  ASSIGN_OR_RETURN(const Input input, read_input(arguments, model, target));
  const ModelConfig& config = model.weights->config();
  ASSIGN_OR_RETURN(const auto engine, Engine::open(model.weights, model.token_map,
                                                   options_for(arguments, input, shape, config.vocab_size, target,
                                                               model.expert_bytes_max)));
  ASSIGN_OR_RETURN(const auto numbers, run_exact(*engine, input.prompts, shape, [] { return !interrupted(); }));
  SafetensorsWriter writer;
  for (size_t i = 0; i < input.names.size(); ++i)
    add_numbers(writer, input.names[i], input.prompts[i], numbers[i], config.vocab_size, config.draft.block_size);
  return writer.write(arguments.output);
}

}  // namespace

Command logits_command() {
  const auto arguments = std::make_shared<LogitsArguments>();
  return {.name = "logits",
          .summary = "exact numbers for given token ids",
          .examples =
              "  deepinfer logits --model checkpoint/ --input prompts.safetensors --output numbers.safetensors\n"
              "  deepinfer logits --model checkpoint/ --input in.safetensors --output out.safetensors --mode batched "
              "--all-logits\n",
          .declare =
              [arguments](OptionSet& options) {
                declare_model_options(options, arguments->model);
                options.add("--input", arguments->input,
                            "safetensors file with NAME.tokens, and optionally NAME.decode_tokens, NAME.draft_anchor, "
                            "NAME.image0, ...");
                options.add("--output", arguments->output, "safetensors file to write");
                options.add(
                    "--mode", arguments->mode,
                    "how prompts run: single (default), chunked:N, stepwise, batched; the numbers are the same");
                options.flag("--all-logits", arguments->all_logits,
                             "also write the logits of every prompt position, and draft logits");
                options.flag("--published-key-slot", arguments->published_key_slot,
                             "for comparison only: reproduce the published reference's index-key defect in decode");
              },
          .run =
              [arguments] {
                if (arguments->input.empty() || arguments->output.empty()) {
                  fmt::print(stderr, "deepinfer logits: --input and --output are required\n");
                  return 2;
                }
                const auto shape = parse_mode(arguments->mode);
                if (!shape.ok()) {
                  fmt::print(stderr, "deepinfer logits: {}\n", shape.status().message());
                  return 2;
                }
                return exit_status(logits(*arguments, shape.value()));
              }};
}

}  // namespace deepinfer
