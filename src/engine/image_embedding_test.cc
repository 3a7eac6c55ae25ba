// SPDX-License-Identifier: MIT
#include "engine/image_embedding.h"

#include <gtest/gtest.h>

#include <thread>

#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

// The golden README's test images: R = (3x+5y+7k) % 256, G = (7x+2y+31) % 256, B = (x*x+11y+k) % 256.
RgbImage golden_image(int k) {
  const auto size = golden_file("vision.safetensors").integers("img" + std::to_string(k) + ".size_wh").value();
  RgbImage image(size[0], size[1]);
  for (int64_t y = 0; y < size[1]; ++y) {
    for (int64_t x = 0; x < size[0]; ++x) {
      image.row(y)[3 * x] = static_cast<uint8_t>((3 * x + 5 * y + 7 * k) % 256);
      image.row(y)[3 * x + 1] = static_cast<uint8_t>((7 * x + 2 * y + 31) % 256);
      image.row(y)[3 * x + 2] = static_cast<uint8_t>((x * x + 11 * y + k) % 256);
    }
  }
  return image;
}

std::vector<ImageSpanRows> golden_spans(const Target& target = golden_options().target) {
  auto embedder = ImageEmbedder::create(*golden_weights(), target);
  EXPECT_TRUE(embedder.ok()) << embedder.status().message();
  std::vector<RgbImage> images;
  images.push_back(golden_image(0));
  images.push_back(golden_image(2));
  auto spans = embedder.value().embed(images, nullptr);
  EXPECT_TRUE(spans.ok()) << spans.status().message();
  return std::move(spans).value();
}

// Every placeholder run of the golden prompt made one id, as a prompt encoder writes it.
std::vector<TokenId> short_prompt() {
  const SafetensorsFile& file = golden_file("vision.safetensors");
  const auto tokens = golden_tokens(file, "mm.tokens");
  const auto types = file.integers("mm.types").value();
  std::vector<TokenId> out;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (types[i] <= 0) out.push_back(tokens[i]);
  return out;
}

TEST(ImageEmbedding, ExpandsPlaceholdersAndKeepsSpansThatAreThere) {
  const auto spans = golden_spans();
  const TokenId image_id = golden_weights()->config().image_token_id;
  const auto full = golden_tokens(golden_file("vision.safetensors"), "mm.tokens");
  for (const auto& tokens : {short_prompt(), full}) {
    const auto placed = place_images(tokens, image_id, spans, 256);
    ASSERT_TRUE(placed.ok()) << placed.status().message();
    EXPECT_EQ(placed.value().tokens, full);
    ASSERT_EQ(placed.value().images.size(), 2u);
  }
  EXPECT_FALSE(place_images(full, image_id, std::span(spans).first(1), 256).ok());
  EXPECT_FALSE(place_images(std::vector<TokenId>{5, image_id}, image_id, spans, 256).ok());
}

TEST(ImageEmbedding, ADevicesRowsAreTheHosts) {
  if (golden_options().target.backend != Backend::kCuda) GTEST_SKIP() << "no device here";
  const auto device = golden_spans(), host = golden_spans({Backend::kCpu, machine_cpu_level()});
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) {
    ASSERT_EQ(device[i]->size(), host[i]->size());
    EXPECT_EQ(std::memcmp(device[i]->data(), host[i]->data(), static_cast<size_t>(host[i]->size_bytes())), 0) << i;
  }
}

// A stream of its own: requests bring images while steps run, and are recorded.
TEST(ImageEmbedding, IsDoneWhileTheEngineRuns) {
  if (golden_options().target.backend != Backend::kCuda) GTEST_SKIP() << "no device here";
  const auto expected = golden_spans({Backend::kCpu, machine_cpu_level()});
  const ExactPrompt prompt = golden_prompt(golden_file("prompts.safetensors"), "p97", true);
  const ExactNumbers alone = run_one(*golden_engine(), prompt, {.chunk = 31});
  const auto engine = golden_engine();
  std::vector<std::vector<ImageSpanRows>> encoded;
  std::thread requests([&] {
    for (int i = 0; i < 8; ++i) encoded.push_back(golden_spans());
  });
  for (const int64_t chunk : {31, 50, 1, 31, 7}) {
    const ExactNumbers beside = run_one(*engine, prompt, {.chunk = chunk});
    EXPECT_EQ(beside.all_logits, alone.all_logits) << chunk;
    EXPECT_EQ(beside.decode_logits, alone.decode_logits) << chunk;
  }
  requests.join();
  for (const auto& spans : encoded)
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(std::memcmp(spans[i]->data(), expected[i]->data(), static_cast<size_t>(expected[i]->size_bytes())), 0);
}

TEST(ImageEmbedding, RowsAndLogitsAgreeWithTheReference) {
  const SafetensorsFile& file = golden_file("vision.safetensors");
  auto placed = place_images(short_prompt(), golden_weights()->config().image_token_id, golden_spans(), 256);
  ASSERT_TRUE(placed.ok());
  const auto wanted = file.floats("mm.embed_rows").value();
  double squares = 0, error = 0;
  for (const LaneImage& image : placed.value().images) {
    for (int64_t i = 0; i < image.rows->size(); ++i) {
      const double golden = wanted[static_cast<size_t>(image.positions.begin * 256 + i)];
      squares += golden * golden;
      error += std::pow(to_float((*image.rows)[i]) - golden, 2);
    }
  }
  EXPECT_LE(std::sqrt(error / squares), 0.01);
  auto engine = golden_engine();
  ExactPrompt prompt{.tokens = placed.value().tokens,
                     .decode_tokens = golden_tokens(file, "mm.decode_tokens"),
                     .images = placed.value().images};
  const ExactNumbers numbers = run_one(*engine, prompt);
  EXPECT_LE(difference(numbers.logits, file.floats("mm.logits").value()).rms, 0.4);
  EXPECT_LE(difference(numbers.decode_logits, file.floats("mm.decode_logits").value()).rms, 0.4);
}

}  // namespace
}  // namespace deepinfer
