// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "tools/command.h"
#include "tools/inspect_report.h"

namespace deepinfer {

Command inspect_command();

namespace {

struct Outcome {
  int exit_status = 0;
  std::string output;
};

Outcome inspect(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"deepinfer", "inspect"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  Outcome outcome;
  outcome.exit_status = run_command_line(static_cast<int>(argv.size()), argv.data(), {inspect_command()});
  fflush(stdout);
  outcome.output = testing::internal::GetCapturedStdout();
  return outcome;
}

TEST(Inspect, ReportsModelAWithEveryPromisedKey) {
  const Outcome outcome = inspect({"--model", DEEPINFER_TESTDATA "/model_a", "--verify", "--json", "--threads", "1"});
  EXPECT_EQ(outcome.exit_status, 0);
  const Json report = parse_json(outcome.output).value();
  for (const char* key : {"architecture", "parameters", "tensors", "bytes", "bytes_per_token", "kv_bytes_per_token",
                          "state_bytes_per_sequence", "context", "fits", "problems"})
    EXPECT_NE(report.find(key), nullptr) << key;
  for (const char* key : {"total", "active", "engram", "vision", "draft"})
    EXPECT_NE(report.find("parameters")->find(key), nullptr) << key;
  EXPECT_EQ(report.find("tensors")->as_int(), 884);
  EXPECT_EQ(report.find("kv_bytes_per_token")->as_int(), 106);  // 53 bytes an entry; 1/2 + 1/2 + 1 entries a token
  EXPECT_EQ(report.find("verified_bytes")->as_int(), 9797060);
  EXPECT_TRUE(report.find("problems")->as_array().empty());
}

TEST(Inspect, FailsWithAMessageWhereThereIsNoCheckpoint) {
  testing::internal::CaptureStderr();
  const Outcome outcome = inspect({"--model", DEEPINFER_TESTDATA "/units"});
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome.exit_status, 1);
  EXPECT_NE(message.find("neither config.json nor inference/config.json"), std::string::npos) << message;
}

class InspectDamaged : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("deepinfer_inspect_test." + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    for (const auto& entry : std::filesystem::directory_iterator(DEEPINFER_TESTDATA "/model_a"))
      if (entry.is_regular_file()) std::filesystem::create_symlink(entry.path(), folder_ / entry.path().filename());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string problems(std::vector<std::string> extra = {}) {
    extra.insert(extra.begin(), {"--model", folder_.string(), "--json", "--threads", "1"});
    const Outcome outcome = inspect(extra);
    return std::to_string(outcome.exit_status) + to_json(*parse_json(outcome.output).value().find("problems"));
  }
  void put(const std::string& name, const std::string& text) {
    std::filesystem::remove(folder_ / name);
    ASSERT_TRUE(write_file_atomically((folder_ / name).string(), text).ok());
  }
  std::filesystem::path folder_;
};

TEST_F(InspectDamaged, NamesATokenizerThatBelongsToAnotherCheckpoint) {
  std::string text = read_file((folder_ / "tokenizer.json").string()).value();
  const size_t at = text.find("<｜User｜>");
  ASSERT_NE(at, std::string::npos);
  put("tokenizer.json", text.replace(at, std::string("<｜User｜>").size(), " tHe"));  // reads as "the" does
  EXPECT_NE(problems().find("285 classes, engram_compressed_vocab_size is 286"), std::string::npos) << problems();
}

TEST_F(InspectDamaged, NamesNaNScalesOnlyWhenAskedToVerify) {
  const std::string shard = "model-00004-of-00005.safetensors";
  std::string bytes = read_file((folder_ / shard).string()).value();
  bytes.back() = '\xFF';  // the last scale of the first Engram table
  put(shard, bytes);
  EXPECT_EQ(problems(), "0[]");
  EXPECT_EQ(problems({"--verify"}),
            "1[\"tensor layers.1.engram.embed.scale: element 461 of F8_E8M0 [462, 1] is NaN\"]");
}

TEST_F(InspectDamaged, ShowsTheCardBesideTheCheckpoint) {
  put("card.json", R"({"name":"a small model"})");
  const Outcome outcome = inspect({"--model", folder_.string()});
  EXPECT_NE(outcome.output.find("name: a small model"), std::string::npos);
}

// All 96,085 tensors: the layout is written by a script that knows nothing of the weight table.
TEST(Inspect, ReadsTheFullReleasedLayout) {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("deepinfer_released_layout." + std::to_string(::getpid()))).string();
  const std::string command =
      "python3 " DEEPINFER_SOURCE_DIR "/scripts/make_released_layout.py " + folder + " >/dev/null";
  if (std::system("python3 -c pass 2>/dev/null") != 0) GTEST_SKIP() << "no python3 to write the layout";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const Outcome outcome = inspect({"--model", folder, "--json"});
  std::filesystem::remove_all(folder);
  EXPECT_EQ(outcome.exit_status, 0);
  const Json report = parse_json(outcome.output).value();
  EXPECT_EQ(to_json(*report.find("problems")), "[]");
  EXPECT_EQ(report.find("tensors")->as_int(), 96085);
  EXPECT_EQ(report.find("bytes")->as_int(), 510286023000);
  EXPECT_EQ(report.find("parameters")->find("active")->as_int(), 16130583664);
  EXPECT_EQ(report.find("kv_bytes_per_token")->as_int(), 890);
}

}  // namespace
}  // namespace deepinfer
