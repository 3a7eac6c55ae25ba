// SPDX-License-Identifier: MIT
// A converted checkpoint gives the numbers of the original, to the bit: what the golden checks say of one holds of the
// other.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/json.h"
#include "tensor/cpu_features.h"
#include "tools/command.h"
#include "tools/interrupt.h"

namespace deepinfer {

Command convert_command();
Command generate_command();
Command inspect_command();
Command logits_command();

namespace {

int run(std::vector<std::string> words) {
  words.insert(words.begin(), "deepinfer");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  return run_command_line(static_cast<int>(argv.size()), argv.data(),
                          {convert_command(), generate_command(), inspect_command(), logits_command()});
}

// What --cpu can force on this machine; `ref` is the other tests' measure and slow.
std::vector<std::string> cpu_levels() {
  std::vector<std::string> levels;
  for (const CpuLevel level : {CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kVnni, CpuLevel::kBf16, CpuLevel::kAmx})
    if (level <= machine_cpu_level()) levels.push_back(to_string(level));
  return levels;
}

// The likeliest tokens behind `prompt`.
Json::Array greedy_tokens(const std::string& model, const std::string& cpu, const std::string& ids, size_t count) {
  testing::internal::CaptureStdout();
  const int status = run({"generate", "--model", model, "--ids", ids, "--max-tokens", std::to_string(count), "--json",
                          "--backend", "cpu", "--cpu", cpu});
  const std::string output = testing::internal::GetCapturedStdout();
  EXPECT_EQ(status, 0);
  const auto json = parse_json(output);
  if (!json.ok() || !json.value().find("token_ids")) {
    ADD_FAILURE() << "no tokens: " << output;
    return {};
  }
  return json.value().find("token_ids")->as_array();
}

// Golden tokens may be left where the reference's two best logits are closer than golden_prompts_test.cc asks; behind
// that step everything follows another token.
void expect_golden(const Json::Array& tokens, const Json& golden) {
  const Json::Array &ids = golden.find("ids")->as_array(), &gaps = golden.find("top1_gap")->as_array();
  ASSERT_EQ(tokens.size(), ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (tokens[i] == ids[i]) continue;
    EXPECT_LT(gaps[i].as_double(), 1.5) << "step " << i;
    return;
  }
}

}  // namespace

TEST(ConvertCommand, LogitsOfTheConvertedModelAreTheOriginalsToTheBit) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("deepinfer_convert_command_test." + std::to_string(::getpid()));
  fs::create_directories(root);
  const std::string model = DEEPINFER_TESTDATA "/model_a", input = model + "/golden/prompts.safetensors",
                    planes = (root / "planes").string();
  ASSERT_EQ(run({"convert", "--model", model, "--output", planes, "--verify"}), 0);
  EXPECT_EQ(run({"convert", "--model", model, "--output", planes, "--verify"}), 0);  // compares what is there
  EXPECT_EQ(run({"inspect", "--model", planes, "--verify"}), 0);
  const auto logits = [&](const std::string& name, const std::string& cpu) {
    const std::string output = (root / ("logits_" + cpu)).string();
    EXPECT_EQ(run({"logits", "--model", name, "--input", input, "--output", output, "--backend", "cpu", "--cpu", cpu}),
              0);
    return read_file(output).value();
  };
  const std::string expected = logits(model, "auto");
  EXPECT_EQ(logits(planes, "auto"), expected);
  for (const std::string& cpu : cpu_levels()) EXPECT_EQ(logits(planes, cpu), expected) << cpu;
  fs::remove_all(root);
}

// Through the whole engine, drafts included, at every level: the tokens of the original, and those of the authors'
// reference.
TEST(ConvertCommand, GreedyTokensOfTheConvertedModelAreGoldenAtEveryCpuLevel) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("deepinfer_convert_greedy_test." + std::to_string(::getpid()));
  fs::create_directories(root);
  const std::string model = DEEPINFER_TESTDATA "/model_a", planes = (root / "planes").string(),
                    ids = (root / "ids.json").string();
  ASSERT_EQ(run({"convert", "--model", model, "--output", planes}), 0);
  const Json golden = parse_json(read_file(model + "/golden/greedy.json").value()).value();
  for (const auto& [length, entry] : golden.as_object()) {
    ASSERT_TRUE(write_file_atomically(ids, to_json(*entry.find("prompt"))).ok());
    const size_t count = entry.find("ids")->as_array().size();
    const Json::Array original = greedy_tokens(model, "auto", ids, count);
    for (const std::string& cpu : cpu_levels()) {
      SCOPED_TRACE(length + " tokens, " + cpu);
      const Json::Array tokens = greedy_tokens(planes, cpu, ids, count);
      EXPECT_EQ(tokens, original);
      expect_golden(tokens, entry);
      if (length == "3") {
        EXPECT_EQ(tokens, entry.find("ids")->as_array());  // close steps and all
      }
    }
  }
  fs::remove_all(root);
}

// A checkpoint may have its configuration in the authors' form alone; the second call compares then, too.
TEST(ConvertCommand, ComparesWhatIsThereInEitherFormOfTheConfiguration) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("deepinfer_convert_form_test." + std::to_string(::getpid()));
  fs::create_directories(root / "model");
  for (const auto& entry : fs::directory_iterator(DEEPINFER_TESTDATA "/model_a"))
    if (entry.path().filename() != "config.json" && entry.path().filename() != "golden")
      fs::create_directory_symlink(entry.path(), root / "model" / entry.path().filename());
  const std::vector<std::string> words = {
      "convert", "--model", (root / "model").string(), "--output", (root / "planes").string(), "--verify"};
  EXPECT_EQ(run(words), 0);
  EXPECT_EQ(run(words), 0);
  fs::remove_all(root);
}

TEST(ConvertCommand, ComparingNamesTheLayoutThatIsThereAndTheOneAsked) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("deepinfer_convert_layout_test." + std::to_string(::getpid()));
  const std::vector<std::string> words = {"convert",  "--model", DEEPINFER_TESTDATA "/model_a", "--output", root,
                                          "--verify", "--layout"};
  const auto run_as = [&](const std::string& layout) {
    std::vector<std::string> all = words;
    all.push_back(layout);
    return run(all);
  };
  ASSERT_EQ(run_as("planes"), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_as("rows"), 1);
  const std::string message = testing::internal::GetCapturedStderr();
  EXPECT_NE(message.find("holds layout planes"), std::string::npos) << message;
  EXPECT_NE(message.find("asked was rows"), std::string::npos) << message;
  fs::remove_all(root);
}

TEST(ConvertCommand, StoppedByCtrlCSaysWhatWasKeptAndGoesOnWhenCalledAgain) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / ("deepinfer_convert_stop_test." + std::to_string(::getpid()));
  const std::vector<std::string> words = {"convert", "--model", DEEPINFER_TESTDATA "/model_a", "--output", root};
  install_interrupt_handler();
  ASSERT_EQ(raise(SIGINT), 0);
  testing::internal::CaptureStderr();
  EXPECT_EQ(run(words), 130);
  const std::string message = testing::internal::GetCapturedStderr();
  clear_interrupt();
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  EXPECT_NE(message.find("0 of 5 shards are whole in " + root.string()), std::string::npos) << message;
  EXPECT_NE(message.find("the same command again"), std::string::npos) << message;
  EXPECT_EQ(run(words), 0);
  fs::remove_all(root);
}

TEST(ConvertCommand, NeedsAnOutput) { EXPECT_EQ(run({"convert"}), 2); }

}  // namespace deepinfer
