// SPDX-License-Identifier: MIT
#include "tools/generate_options.h"

#include <gtest/gtest.h>

#include "tools/command.h"

namespace deepinfer {

Command generate_command();

namespace {

GenerateOptions options_of(const std::string& backend, const std::string& numerics, const std::string& ops,
                           bool checks_memory = false) {
  GenerateOptions options;
  options.model.backend = backend;
  options.model.numerics = numerics;
  options.exact_ops = ops;
  options.checks_memory = checks_memory;
  return options;
}

void expect_refused(const GenerateOptions& options, const std::string& words) {
  const Status status = check_debug_options(options);
  ASSERT_FALSE(status.ok()) << words;
  EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

}  // namespace

TEST(GenerateOptions, DebugOptionsAreRefusedWhereTheyWouldBeIgnored) {
  for (const char* backend : {"auto", "cpu"}) {
    expect_refused(options_of(backend, "exact", "linear"), "--backend cuda --numerics fast");
    expect_refused(options_of(backend, "exact", "", true), "--check-memory is for --backend cuda");
  }
  expect_refused(options_of("cuda", "exact", "linear"), "--backend cuda --numerics fast");
  EXPECT_TRUE(check_debug_options(options_of("cuda", "fast", "linear,experts", true)).ok());
  EXPECT_TRUE(check_debug_options(options_of("auto", "exact", "")).ok());
}

TEST(GenerateOptions, AnEmptyNameOfAnOpIsCalledThat) {
  for (const char* ops : {",x", "x,", "x,,y", ","}) expect_refused(options_of("cuda", "fast", ops), "an empty name");
}

TEST(GenerateOptions, TheCommandRefusesThemAsWrongUsage) {
  std::vector<std::string> words = {"deepinfer", "generate", "--prompt", "hi", "--max-tokens", "1", "--check-memory"};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  EXPECT_EQ(run_command_line(static_cast<int>(argv.size()), argv.data(), {generate_command()}), 2);
}

}  // namespace deepinfer
