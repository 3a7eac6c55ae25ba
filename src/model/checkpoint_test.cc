// SPDX-License-Identifier: MIT
// Opening checkpoint folders, sound and damaged. Damage is done to a copy of model A, made of links where files stay
// whole.
#include "model/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "model/weight_table.h"
#include "model/weights.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;
const std::string kModelA = DEEPINFER_TESTDATA "/model_a";
const std::string kIndex = "/model.safetensors.index.json";

bool says(const std::string& message, const std::string& words) { return message.find(words) != std::string::npos; }
#define EXPECT_SAYS(message, words) EXPECT_TRUE(says(message, words)) << (message)

// A folder of links to model A's files, each to be replaced by a damaged one.
class DamagedCheckpoint : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("deepinfer_checkpoint_test." + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    for (const auto& entry : fs::directory_iterator(kModelA))
      if (entry.is_regular_file()) fs::create_symlink(entry.path(), folder_ / entry.path().filename());
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void put(const std::string& name, const std::string& bytes) {
    fs::remove(folder_ / name);
    ASSERT_TRUE(write_file_atomically(path(name), bytes).ok());
  }
  std::string shard(int number) const { return "model-0000" + std::to_string(number) + "-of-00005.safetensors"; }
  std::string bytes_of(const std::string& name) const { return read_file(path(name)).value(); }
  // Model A's index with one change.
  void change_index(const std::function<void(Json&)>& change) {
    Json root = parse_json(bytes_of("model.safetensors.index.json")).value();
    change(root);
    put("model.safetensors.index.json", to_json(root));
  }
  void change_text_config(const std::string& key, const Json& value) {
    Json root = parse_json(bytes_of("config.json")).value();
    root.find("text_config")->set(key, value);
    put("config.json", to_json(root));
  }

  Status opened() const { return Checkpoint::open(folder_.string()).status(); }
  Status bound() const {
    auto checkpoint = Checkpoint::open(folder_.string());
    if (!checkpoint.ok()) return checkpoint.status();
    return ModelWeights::bind(std::make_shared<Checkpoint>(std::move(checkpoint).value())).status();
  }
  // Replaces `from` in a shard's header by `to` of the same length.
  void change_header(int number, const std::string& from, const std::string& to) {
    std::string bytes = bytes_of(shard(number));
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    ASSERT_EQ(from.size(), to.size());
    put(shard(number), bytes.replace(at, from.size(), to));
  }

  fs::path folder_;
};

TEST_F(DamagedCheckpoint, ReadsShardsThroughLinks) { EXPECT_TRUE(bound().ok()) << bound().message(); }

TEST_F(DamagedCheckpoint, SaysWhatIsMissing) {
  EXPECT_SAYS(Checkpoint::open(path("nowhere")).status().message(), "no such folder");
  fs::remove(folder_ / "config.json");
  EXPECT_SAYS(opened().message(), "neither config.json nor inference/config.json");
  put("config.json", read_file(kModelA + "/config.json").value());
  fs::remove(folder_ / "model.safetensors.index.json");
  EXPECT_SAYS(opened().message(), "neither model.safetensors.index.json nor model.safetensors");
}

TEST_F(DamagedCheckpoint, RefusesATruncatedShard) {
  const std::string whole = bytes_of(shard(2));
  put(shard(2), whole.substr(0, whole.size() - 1));
  EXPECT_SAYS(opened().message(), shard(2) + ": tensor ");
  EXPECT_SAYS(opened().message(), "(truncated?)");
  put(shard(2), whole.substr(0, 100));
  EXPECT_SAYS(opened().message(), "the file has 100 bytes");
  put(shard(2), "");
  EXPECT_SAYS(opened().message(), "0 bytes, at least 8 expected");
}

TEST_F(DamagedCheckpoint, RefusesAHeaderOfTwoToTheSixtyBytes) {
  std::string bytes = bytes_of(shard(4));
  bytes.replace(0, 8, std::string("\0\0\0\0\0\0\0\x10", 8));
  put(shard(4), bytes);
  EXPECT_SAYS(opened().message(), "header length 1152921504606846976, at most 104857600 accepted");
}

TEST_F(DamagedCheckpoint, RefusesADtypeThatIsNotTheDeclaredOne) {
  change_header(1, R"("embed.weight":{"dtype":"BF16")", R"("embed.weight":{"dtype":"F16" )");
  EXPECT_SAYS(bound().message(), "tensor embed.weight is F16 [512, 256], expected BF16 [512, 256]");
}

TEST_F(DamagedCheckpoint, NamesMisshapenUnknownAndMissingTensorsTogether) {
  change_header(1, R"("embed.weight":{"dtype":"BF16","shape":[512,256])",
                R"("embed.weight":{"dtype":"BF16","shape":[256,512])");
  change_header(1, R"("layers.0.ffn_norm.weight")", R"("layers.0.ffn_norX.weight")");
  change_index([](Json& root) {
    for (auto& member : root.find("weight_map")->as_object())
      if (member.first == "layers.0.ffn_norm.weight") member.first = "layers.0.ffn_norX.weight";
  });
  const std::string message = bound().message();
  EXPECT_SAYS(message, "tensor embed.weight is BF16 [256, 512], expected BF16 [512, 256]");
  EXPECT_SAYS(message, "tensor layers.0.ffn_norm.weight is missing");
  EXPECT_SAYS(message, "tensor layers.0.ffn_norX.weight of " + shard(1) + " is unknown");
}

TEST_F(DamagedCheckpoint, NamesATensorThatStandsInTwoShards) {
  fs::remove(folder_ / shard(5));
  fs::create_symlink(kModelA + "/" + shard(4), folder_ / shard(5));
  EXPECT_SAYS(opened().message(),
              "tensor layers.1.engram.embed.weight stands in two shards: " + shard(4) + " and " + shard(5));
}

TEST_F(DamagedCheckpoint, ComparesIndexAndHeaders) {
  change_index([&](Json& root) { root.find("weight_map")->set("embed.weight", shard(2)); });
  EXPECT_SAYS(opened().message(),
              "tensor embed.weight: the index places it in " + shard(2) + ", it stands in " + shard(1));
  change_index([&](Json& root) {
    std::erase_if(root.find("weight_map")->as_object(),
                  [](const Json::Member& m) { return m.first == "embed.weight"; });
  });
  EXPECT_SAYS(opened().message(), "tensor embed.weight of " + shard(1) + " is not in the index");
  change_index([&](Json& root) { root.find("weight_map")->set("embed.wait", shard(1)); });
  EXPECT_SAYS(opened().message(),
              "tensor embed.wait: the index places it in " + shard(1) + ", but that shard does not hold it");
}

TEST_F(DamagedCheckpoint, RefusesAShardThatIsNoFileOfTheFolder) {
  for (const char* name : {"../model_a/config.json", "/etc/passwd", "..", "", "sub/model.safetensors"}) {
    change_index([&](Json& root) { root.find("weight_map")->set("embed.weight", name); });
    EXPECT_SAYS(opened().message(), "expected the name of a file in the checkpoint's folder");
  }
  change_index([&](Json& root) { root.find("weight_map")->set("embed.weight", "absent.safetensors"); });
  EXPECT_SAYS(opened().message(), "absent.safetensors: no such file");
  change_index([&](Json& root) { root.find("weight_map")->set("embed.weight", "folder"); });
  fs::create_directory(folder_ / "folder");
  EXPECT_SAYS(opened().message(), "folder is no regular file");
}

TEST_F(DamagedCheckpoint, RefusesALoopOfLinks) {
  fs::remove(folder_ / shard(3));
  fs::create_symlink(shard(3), folder_ / shard(3));
  EXPECT_SAYS(opened().message(), shard(3) + ": Too many levels of symbolic links");
  fs::remove(folder_ / "config.json");
  fs::create_symlink("config.json", folder_ / "config.json");
  EXPECT_SAYS(opened().message(), "config.json: Too many levels of symbolic links");
}

TEST_F(DamagedCheckpoint, RefusesAnIndexThatIsNone) {
  put("model.safetensors.index.json", "{}");
  EXPECT_SAYS(opened().message(), "no \"weight_map\" object");
  put("model.safetensors.index.json", R"({"weight_map":{"a":"x","a":"y"}})");
  EXPECT_SAYS(opened().message(), "duplicate key \"a\"");
  put("model.safetensors.index.json", R"({"weight_map":{"a":3}})");
  EXPECT_SAYS(opened().message(), "the file of a is no string");
}

TEST_F(DamagedCheckpoint, RefusesAConfigurationOutsideTheRules) {
  change_text_config("index_topk", 18);
  EXPECT_SAYS(opened().message(), "leave at least 17 candidates, index_topk needs 18");
}

// Scale 5 of expert 1's w2 in layer 3.
TEST_F(DamagedCheckpoint, FindsANaNScaleWhenItsTensorIsFirstTouched) {
  const auto sound = Checkpoint::open(kModelA);
  const StoredTensor& tensor = *sound.value().find("layers.3.ffn.experts.1.w2.scale");
  const std::string file = sound.value().shard_files()[tensor.shard];
  std::string bytes = bytes_of(file);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  bytes[8 + header + tensor.info.begin + 5] = '\xFF';
  put(file, bytes);
  auto checkpoint = Checkpoint::open(folder_.string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto weights = ModelWeights::bind(std::make_shared<Checkpoint>(std::move(checkpoint).value()));
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_TRUE(weights.value().touch_layer(3).ok());
  EXPECT_TRUE(weights.value().touch_expert(3, 0).ok());
  for (int again = 0; again < 2; ++again)
    EXPECT_EQ(weights.value().touch_expert(3, 1).message(),
              "tensor layers.3.ffn.experts.1.w2.scale: scale 5 of [256, 3] is NaN");
}

TEST(Checkpoint, ReadsASingleFileWithoutAnIndex) {
  const fs::path folder = fs::temp_directory_path() / ("deepinfer_single_file_test." + std::to_string(::getpid()));
  fs::create_directories(folder);
  fs::copy_file(kModelA + "/config.json", folder / "config.json", fs::copy_options::overwrite_existing);
  SafetensorsWriter writer;
  writer.add("embed.weight", {1}, std::vector<float>{1});
  ASSERT_TRUE(writer.write((folder / "model.safetensors").string()).ok());
  const auto checkpoint = Checkpoint::open(folder.string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_EQ(checkpoint.value().payload_bytes(), 4u);
  fs::remove_all(folder);
}

// Model A's files in one buffer each, `shift` bytes behind an aligned address.
struct CopyInMemory {
  explicit CopyInMemory(int64_t shift) {
    for (const auto& entry : fs::directory_iterator(kModelA)) {
      if (!entry.is_regular_file()) continue;
      const std::string content = read_file(entry.path().string()).value();
      names.push_back(entry.path().filename().string());
      buffers.emplace_back(static_cast<int64_t>(content.size()) + shift);
      std::memcpy(buffers.back().data() + shift, content.data(), content.size());
    }
    for (size_t i = 0; i < names.size(); ++i)
      files.push_back(
          {names[i],
           std::span<const uint8_t>(buffers[i].begin(), buffers[i].end()).subspan(static_cast<size_t>(shift))});
  }
  std::vector<std::string> names;
  std::vector<Buffer<uint8_t>> buffers;
  std::vector<MemoryFile> files;
};

TEST(Checkpoint, ReadsAModelFromMemory) {
  const CopyInMemory copy(0);
  auto checkpoint = Checkpoint::open("mini", files_in_memory("mini", copy.files));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  EXPECT_TRUE(checkpoint.value().files().contains("tokenizer.json"));
  EXPECT_TRUE(ModelWeights::bind(std::make_shared<Checkpoint>(std::move(checkpoint).value())).ok());
  EXPECT_SAYS(Checkpoint::open("mini", files_in_memory("mini", {})).status().message(),
              "mini/: neither config.json nor");
}

TEST(Checkpoint, CopiesTensorsWhoseBytesAreNotAligned) {
  const CopyInMemory copy(1);
  auto checkpoint = Checkpoint::open("odd", files_in_memory("odd", copy.files));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto shared = std::make_shared<Checkpoint>(std::move(checkpoint).value());
  const auto weights = ModelWeights::bind(shared);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const auto expect_aligned = [&](const char* name, const void* data, size_t alignment) {
    const auto bytes = shared->bytes(*shared->find(name));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % alignment, 0u) << name;
    EXPECT_EQ(std::memcmp(bytes.data(), data, bytes.size()), 0) << name;
  };
  expect_aligned("layers.0.hc_attn_fn", weights.value().layers[0].attention_mix.fn.data, 4);
  expect_aligned("head.weight", weights.value().head.data, 2);
  expect_aligned("layers.8.attn.kv_norm.weight", weights.value().layers[8].attention.kv_norm.data, 2);
}

TEST(Checkpoint, BindsEveryTensorOfModelA) {
  auto checkpoint = Checkpoint::open(kModelA);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  const auto shared = std::make_shared<Checkpoint>(std::move(checkpoint).value());
  const auto weights = ModelWeights::bind(shared);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const ModelWeights& w = weights.value();
  EXPECT_EQ(w.layers.size(), 9u);
  EXPECT_EQ(w.draft.layers.size(), 2u);
  EXPECT_EQ(w.vision.blocks.size(), 2u);
  for (int l = 0; l < 11; ++l) {
    EXPECT_TRUE(w.touch_layer(l).ok());
    for (int e = 0; e < (l < 9 ? 8 : 4); ++e) EXPECT_TRUE(w.touch_expert(l, e).ok());
  }
  // Views point at the tensor's bytes, or at an aligned copy of them.
  const auto same = [&](const char* name, const void* data) {
    const auto bytes = shared->bytes(*shared->find(name));
    return std::memcmp(bytes.data(), data, bytes.size()) == 0;
  };
  EXPECT_TRUE(same("layers.5.attn.compressor.wkv.weight", w.layers[5].attention.compressor.wkv.data));
  EXPECT_TRUE(w.layers[5].attention.compressor.wgate.empty());
  EXPECT_FALSE(w.layers[2].attention.compressor.wgate.empty());
  EXPECT_TRUE(w.layers[7].attention.indexer.wk.empty());
  EXPECT_TRUE(same("layers.7.attn.indexer.wq_b.scale", w.layers[7].attention.indexer.wq_b.scales));
  EXPECT_TRUE(same("layers.4.ffn.experts.7.w3.weight", w.layers[4].moe.experts[7].w3.codes));
  EXPECT_TRUE(same("mtp.1.confidence_head.proj.weight", w.draft.confidence.data));
  EXPECT_TRUE(same("layers.4.engram.embed.scale", w.layers[4].engram.table.scales));
  EXPECT_TRUE(same("vision.blocks.1.mlp.w2.weight", w.vision.blocks[1].mlp_w2.data));
  for (const StoredTensor& tensor : shared->tensors()) {
    const auto at = find_nan(tensor.info.dtype, shared->bytes(tensor));
    EXPECT_FALSE(at) << tensor.info.name;
  }
}

}  // namespace
}  // namespace deepinfer
