// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "tools/command.h"

namespace deepinfer {

Command store_command();

namespace {

// One command with an option of each kind, and what it was run with.
struct Probe {
  std::string text;
  std::vector<std::string> names;
  int64_t count = 7;
  double heat = 0.5;
  bool loud = false;
  int num_runs = 0;

  std::vector<Command> commands() {
    return {{.name = "probe",
             .summary = "a probe",
             .examples = "  deepinfer probe\n",
             .declare =
                 [this](OptionSet& options) {
                   options.add("--text", text, "text");
                   options.add("--name", names, "names");
                   options.add("--count", count, {1, 100}, "count");
                   options.add("--heat", heat, {0, 2}, "heat");
                   options.flag("--loud", loud, "loud");
                 },
             .run =
                 [this] {
                   ++num_runs;
                   return 0;
                 }}};
  }

  int run(std::vector<std::string> words) {
    words.insert(words.begin(), {"deepinfer", "probe"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    return run_command_line(static_cast<int>(argv.size()), argv.data(), commands());
  }
};

std::string write_config(const std::string& toml) {
  const std::string path = testing::TempDir() + "command_line_test.toml";
  std::ofstream(path) << toml;
  return path;
}

TEST(CommandLine, NumbersOutsideTheirRangeAreWrongUsage) {
  for (const char* word : {"0", "-1", "101", "99999999999999999999", "two", "1.5", ""}) {
    Probe probe;
    EXPECT_EQ(probe.run({"--count", word}), 2) << word;
    EXPECT_EQ(probe.num_runs, 0) << word;
  }
  for (const char* word : {"nan", "-0.1", "2.5", "inf", "x"}) {
    Probe probe;
    EXPECT_EQ(probe.run({"--heat", word}), 2) << word;
  }
  Probe probe;
  EXPECT_EQ(probe.run({"--count", "100", "--heat", "2"}), 0);
  EXPECT_EQ(probe.count, 100);
  EXPECT_EQ(probe.heat, 2);
}

TEST(CommandLine, AConfigurationFileSetsOptionsAndTheCommandLineWins) {
  const std::string path = write_config("text = \"-x\"\nname = [\"a\", \"b\"]\ncount = 9\nloud = true\n");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--config", path}, {"--config=" + path}}) {
    Probe probe;
    EXPECT_EQ(probe.run(words), 0);
    EXPECT_EQ(probe.text, "-x");
    EXPECT_EQ(probe.names, (std::vector<std::string>{"a", "b"}));
    EXPECT_EQ(probe.count, 9);
    EXPECT_TRUE(probe.loud);
  }
  Probe probe;
  EXPECT_EQ(probe.run({"--config", path, "--count=3"}), 0);
  EXPECT_EQ(probe.count, 3);
}

TEST(CommandLine, AConfigurationThatDoesNotFitIsWrongUsage) {
  for (const char* toml :
       {"cuont = 1", "count = true", "count = {a = 1}", "count = 2.5", "loud = \"no\"", "loud = 1", "name = [[1]]",
        "[text]\na = 1", "help = true", "config = \"x\"", "count = [", "count = 0"}) {
    Probe probe;
    EXPECT_EQ(probe.run({"--config", write_config(toml)}), 2) << toml;
    EXPECT_EQ(probe.num_runs, 0) << toml;
  }
  Probe probe;
  EXPECT_EQ(probe.run({"--config", "/nonexistent/file.toml"}), 2);
  EXPECT_EQ(probe.run({"--config"}), 2);
  EXPECT_EQ(probe.run({"--config", write_config("count = 1"), "--config", write_config("count = 1")}), 2);
}

TEST(CommandLine, UnknownCommandsAndOptionsAreWrongUsage) {
  Probe probe;
  EXPECT_EQ(probe.run({"--cuont", "1"}), 2);
  EXPECT_EQ(probe.run({"extra"}), 2);
  EXPECT_EQ(probe.run({"--count", "1", "--count", "2"}), 2);
}

int run_store(std::vector<std::string> words, std::string& message) {
  words.insert(words.begin(), {"deepinfer", "store"});
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  testing::internal::CaptureStderr();
  const int status = run_command_line(static_cast<int>(argv.size()), argv.data(), {store_command()});
  message = testing::internal::GetCapturedStderr();
  return status;
}

TEST(CommandLine, StoreSaysWhichActionsAndBlocksThereAre) {
  std::string message;
  EXPECT_EQ(run_store({"delete"}, message), 2);
  EXPECT_NE(message.find("forget"), std::string::npos) << message;
  const std::string folder = testing::TempDir() + "command_line_test_store", ids = folder + ".json";
  std::string list = "[0";
  for (int i = 1; i < 256; ++i) list += "," + std::to_string(i);
  std::ofstream(ids) << list << "]";
  EXPECT_EQ(run_store({"put", "--path", folder, "--ids", ids, "--payload", ids, "--first-block", "2"}, message), 1);
  EXPECT_NE(message.find("--first-block 2: the ids make 2 blocks"), std::string::npos) << message;
}

}  // namespace
}  // namespace deepinfer
