// SPDX-License-Identifier: MIT
#include "tools/generate_prompt.h"

#include <gtest/gtest.h>

#include "tools/engine_target.h"

namespace deepinfer {

TEST(GeneratePrompt, TakesExactlyOneSource) {
  EXPECT_TRUE(check_prompt_options({.prompt = "hi"}, false).ok());
  EXPECT_TRUE(check_prompt_options({.prompt = "hi", .images = {"a.png"}, .raw = true}, false).ok());
  EXPECT_TRUE(check_prompt_options({}, true).ok());
  EXPECT_FALSE(check_prompt_options({}, false).ok());
  EXPECT_FALSE(check_prompt_options({.prompt = "hi", .ids = "ids.json"}, false).ok());
  EXPECT_FALSE(check_prompt_options({.prompt = "hi"}, true).ok());
}

TEST(GeneratePrompt, RefusesOptionsThatWouldBeIgnored) {
  EXPECT_FALSE(check_prompt_options({.chat = "body.json", .images = {"a.png"}}, false).ok());
  EXPECT_FALSE(check_prompt_options({.images = {"a.png"}}, true).ok());
  EXPECT_FALSE(check_prompt_options({.ids = "ids.json", .raw = true}, false).ok());
}

TEST(EngineTarget, RefusesABackendThatIsNotBuilt) {
  EXPECT_TRUE(engine_target({.backend = "auto"}).ok());
  EXPECT_TRUE(engine_target({.backend = "cpu"}).ok());
  for (const char* backend : {"cuda", "ascend"}) {
    const auto target = engine_target({.backend = backend});
    ASSERT_FALSE(target.ok());
    EXPECT_NE(target.status().message().find(backend), std::string::npos);
  }
}

}  // namespace deepinfer
