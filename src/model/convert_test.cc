// SPDX-License-Identifier: MIT
#include "model/convert.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "model/device_weights.h"
#include "model/weights.h"
#include "tensor/second_heap.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;
const std::string kModelA = DEEPINFER_TESTDATA "/model_a";

class Convert : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(root_);
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  std::string folder(const std::string& name) const { return (root_ / name).string(); }
  Status convert(const std::string& from, const std::string& to, WeightLayout layout = WeightLayout::kPlanes) {
    return convert_checkpoint(Checkpoint::open(from).value(), to, layout, pool_, [](uint64_t) { return true; });
  }
  Status compare(const std::string& a, const std::string& b) {
    return compare_checkpoints(Checkpoint::open(a).value(), Checkpoint::open(b).value(), pool_,
                               [](uint64_t) { return true; });
  }
  static uint64_t data_bytes_of(const Checkpoint& checkpoint, size_t shard) {
    uint64_t end = 0;
    for (const StoredTensor& tensor : checkpoint.tensors())
      if (tensor.shard == shard) end = std::max<uint64_t>(end, tensor.info.end);
    return end;
  }
  static bool has_partial_files(const std::string& in) {
    for (const auto& entry : fs::directory_iterator(in))
      if (entry.path().extension() == ".partial") return true;
    return false;
  }

  fs::path root_ = fs::temp_directory_path() / ("deepinfer_convert_test." + std::to_string(::getpid()));
  ThreadPool pool_{2};
};

}  // namespace

TEST_F(Convert, TurnsQuantisedMatricesAndKeepsEveryValue) {
  ASSERT_EQ(convert(kModelA, folder("planes")).message(), "");
  EXPECT_EQ(compare(kModelA, folder("planes")).message(), "");
  EXPECT_EQ(compare(folder("planes"), kModelA).message(), "");
  const auto bind = [](const std::string& path) {
    return ModelWeights::bind(std::make_shared<Checkpoint>(Checkpoint::open(path).value())).value();
  };
  const ModelWeights rows = bind(kModelA), planes = bind(folder("planes"));
  const Fp4Matrix &a = rows.layers[3].moe.experts[1].w2, &b = planes.layers[3].moe.experts[1].w2;
  EXPECT_EQ(a.layout, WeightLayout::kRows);
  ASSERT_EQ(b.layout, WeightLayout::kPlanes);
  for (int64_t o = 0; o < a.out; ++o)
    for (int64_t k = 0; k < a.in; ++k)
      ASSERT_TRUE(a.code(o, k) == b.code(o, k) && a.scale(o, k) == b.scale(o, k)) << o << ", " << k;
  const Fp8Matrix &c = rows.layers[0].attention.wo_b, &d = planes.layers[0].attention.wo_b;
  ASSERT_EQ(d.layout, WeightLayout::kPlanes);
  for (int64_t o = 0; o < c.out; ++o)
    for (int64_t k = 0; k < c.in; ++k)
      ASSERT_TRUE(c.code(o, k) == d.code(o, k) && c.scale(o, k) == d.scale(o, k)) << o << ", " << k;
}

TEST_F(Convert, BringsBackTheReleasedBytes) {
  ASSERT_EQ(convert(kModelA, folder("planes")).message(), "");
  ASSERT_EQ(convert(folder("planes"), folder("rows"), WeightLayout::kRows).message(), "");
  const Checkpoint a = Checkpoint::open(kModelA).value(), b = Checkpoint::open(folder("rows")).value();
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const StoredTensor& tensor : a.tensors()) {
    const StoredTensor* other = b.find(tensor.info.name);
    ASSERT_TRUE(other) << tensor.info.name;
    EXPECT_TRUE(std::ranges::equal(a.bytes(tensor), b.bytes(*other))) << tensor.info.name;
  }
  EXPECT_EQ(read_file(folder("rows") + "/tokenizer.json").value(), read_file(kModelA + "/tokenizer.json").value());
}

TEST_F(Convert, LeavesNothingBrokenWhenStoppedAndGoesOn) {
  const Checkpoint from = Checkpoint::open(kModelA).value();
  const std::string to = folder("planes");
  const auto stop_at = [&](uint64_t most) {
    return convert_checkpoint(from, to, WeightLayout::kPlanes, pool_, [=](uint64_t bytes) { return bytes < most; });
  };
  EXPECT_EQ(stop_at(from.payload_bytes() / 2).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(has_partial_files(to));
  EXPECT_FALSE(Checkpoint::open(to).ok());
  const auto first = fs::path(to) / from.shard_files()[0];
  ASSERT_TRUE(fs::exists(first));
  const auto written = fs::last_write_time(first);
  EXPECT_EQ(stop_at(UINT64_MAX).message(), "");
  EXPECT_EQ(fs::last_write_time(first), written);  // whole before, not written again
  EXPECT_EQ(compare(kModelA, to).message(), "");
  EXPECT_EQ(convert(kModelA, to).message(), to + ": holds a checkpoint already");
}

// What another checkpoint of the same model left behind has the same headers and sizes; it is not mixed in.
TEST_F(Convert, WritesAnewWhatAnotherCheckpointLeft) {
  fs::copy(kModelA, folder("other"), fs::copy_options::recursive);
  const Checkpoint from = Checkpoint::open(kModelA).value();
  for (const char* name : {"layers.3.ffn.experts.1.w2.weight", "layers.0.attn.wo_b.weight", "norm.weight"}) {
    const StoredTensor* tensor = from.find(name);
    ASSERT_TRUE(tensor) << name;
    const std::string file = "/" + from.shard_files()[tensor->shard], to = folder("to") + name;
    std::string bytes = read_file(kModelA + file).value();
    const std::string original = bytes;
    bytes[bytes.size() - data_bytes_of(from, tensor->shard) + tensor->info.begin] ^= 1;
    ASSERT_TRUE(write_file_atomically(folder("other") + file, bytes).ok());
    ASSERT_EQ(convert(folder("other"), to).message(), "");
    fs::remove(to + "/config.json");
    fs::remove_all(to + "/inference");
    EXPECT_EQ(convert(kModelA, to).message(), "");
    EXPECT_EQ(compare(kModelA, to).message(), "") << name;
    ASSERT_TRUE(write_file_atomically(folder("other") + file, original).ok());
  }
}

// A limit on the size of files stands for a full disk.
TEST_F(Convert, NamesTheFileThatCouldNotBeWritten) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit low{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = convert(kModelA, folder("planes"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(status.message().starts_with(folder("planes") + "/model-0000")) << status.message();
  EXPECT_TRUE(status.message().ends_with(".safetensors: File too large")) << status.message();
  EXPECT_FALSE(has_partial_files(folder("planes")));
}

TEST_F(Convert, SaysWhatTheDiskLacks) {
  EXPECT_TRUE(check_room("/data/planes", 1000, 1000).ok());
  const Status status = check_room("/data/planes", 510'286'023'000, 63'000'000'000);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(
      status.message(),
      "/data/planes: 510.29 GB are still to be written and the disk has 63.00 GB left: make room or choose a folder on "
      "another disk");
}

TEST_F(Convert, VerifyNamesATensorWithAnotherValue) {
  ASSERT_EQ(convert(kModelA, folder("planes")).message(), "");
  const std::string path = folder("planes") + "/model-00001-of-00005.safetensors";
  std::string bytes = read_file(path).value();
  bytes[bytes.size() - 1] ^= 1;
  ASSERT_TRUE(write_file_atomically(path, bytes).ok());
  const Status status = compare(kModelA, folder("planes"));
  EXPECT_EQ(status.code(), StatusCode::kCorruption);
  EXPECT_TRUE(status.message().starts_with("tensor ")) << status.message();
}

// Names come from outside: a matrix whose scales stand in another layout is refused.
TEST_F(Convert, RefusesAMatrixInTwoLayouts) {
  ASSERT_EQ(convert(kModelA, folder("planes")).message(), "");
  const std::string name = "layers.3.ffn.experts.1.w2.scale";
  for (const auto& entry : fs::directory_iterator(folder("planes"))) {
    if (entry.path().extension() != ".safetensors" && !entry.path().string().ends_with("index.json")) continue;
    std::string bytes = read_file(entry.path().string()).value();
    const size_t at = bytes.find("\"" + name + ".planes\"");
    if (at == std::string::npos) continue;
    bytes.replace(at, name.size() + 9, "\"" + name + "\"       ");
    ASSERT_TRUE(write_file_atomically(entry.path().string(), bytes).ok());
  }
  const auto bound = ModelWeights::bind(std::make_shared<Checkpoint>(Checkpoint::open(folder("planes")).value()));
  ASSERT_FALSE(bound.ok());
  EXPECT_TRUE(bound.status().message().find("tensor " + name + " stands in another layout") != std::string::npos)
      << bound.status().message();
}

// Kernels of devices read rows alone.
TEST_F(Convert, PlanesAreRefusedByADevice) {
  ASSERT_EQ(convert(kModelA, folder("planes")).message(), "");
  const ModelWeights weights =
      ModelWeights::bind(std::make_shared<Checkpoint>(Checkpoint::open(folder("planes")).value())).value();
  SecondHeap device;
  const auto uploaded = DeviceWeights::upload(weights, device);
  ASSERT_FALSE(uploaded.ok());
  EXPECT_EQ(uploaded.status().code(), StatusCode::kUnimplemented);
  for (const char* part : {"tensor layers.", ".planes stands in planes", "`deepinfer convert --layout rows`"})
    EXPECT_NE(uploaded.status().message().find(part), std::string::npos) << uploaded.status().message();
}

}  // namespace deepinfer
