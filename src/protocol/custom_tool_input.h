// SPDX-License-Identifier: MIT
// The free text of a custom tool call, out of its arguments `{"input": "…"}` as they arrive: the string is unescaped
// piece by piece, incomplete escapes are held, a bad escape stays as it is, whatever follows the closing quote is
// dropped. Arguments of another shape pass unchanged. Source: chat.md 5.3. Thread: its owner's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

class CustomToolInput {
 public:
  void begin();
  void push(std::string_view arguments, std::string& out);  // appends the text that is settled
  void finish(std::string& out);                            // appends what was held, unchanged

 private:
  enum class State { kPrefix, kString, kRaw, kDone };

  void push_prefix(char c, std::string& out);
  void push_string(char c, std::string& out);
  void settle_escape(std::string& out);

  State state_ = State::kPrefix;
  size_t num_matched_ = 0;  // of the prefix, white space not counted
  std::string held_;        // the prefix so far, or an incomplete escape
};

}  // namespace deepinfer
