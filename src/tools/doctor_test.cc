// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include "base/json.h"
#include "tools/command.h"

namespace deepinfer {

Command doctor_command();

namespace {

std::string doctor(std::vector<std::string> arguments, int& exit_status) {
  arguments.insert(arguments.begin(), {"deepinfer", "doctor"});
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  testing::internal::CaptureStdout();
  exit_status = run_command_line(static_cast<int>(argv.size()), argv.data(), {doctor_command()});
  fflush(stdout);
  return testing::internal::GetCapturedStdout();
}

TEST(Doctor, ResolvesEveryOpToTheReferenceWhenAskedTo) {
  int status = 1;
  const Json report =
      parse_json(doctor({"--cpu", "ref", "--json", "--model", DEEPINFER_TESTDATA "/model_a"}, status)).value();
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(report.find("ops")->as_array().empty());
  for (const Json& op : report.find("ops")->as_array()) EXPECT_EQ(op.find("chosen")->as_string(), "ref") << to_json(op);
  EXPECT_TRUE(report.find("model_fits")->as_bool());
}

TEST(Doctor, SaysWhatEachOpTook) {
  int status = 1;
  const std::string text = doctor({}, status);
  EXPECT_EQ(status, 0);
  for (const char* words : {"cpu: ", "memory: ", "linear ", "sparse_attention ", "vision_attention "})
    EXPECT_NE(text.find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace deepinfer
