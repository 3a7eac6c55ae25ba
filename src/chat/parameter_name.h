// SPDX-License-Identifier: MIT
// Reads a parameter's name out of `"NAME" string="true">`, byte by byte, and gives it as a JSON key. Names may hold
// spaces, quotes and control characters: the name ends at a quote and a space, or, once it holds a space itself, before
// ` string="`. Source: chat.md 4.2 with its known bugs repaired. Thread: its owner's.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

class ParameterName {
 public:
  enum class Outcome {
    kReading,  // more bytes are needed
    kName,     // the key and `: ` are complete; the attribute follows
    kNoKind,   // the key and `: ` are complete and the tag ended: the value follows (tolerant reading only)
  };

  explicit ParameterName(bool recipe_compatible = true) : compatible_(recipe_compatible) {}

  void begin();
  // Appends what the byte settles to `out`: argument text.
  Outcome push(uint8_t byte, std::string& out);
  // The output ended inside the name.
  void finish(std::string& out);

 private:
  enum class State { kBefore, kInside, kQuote, kAttribute, kBare };

  Outcome push_before(uint8_t byte, std::string& out);
  Outcome push_after_quote(uint8_t byte, std::string& out);
  Outcome push_attribute(uint8_t byte, std::string& out);
  Outcome push_bare(uint8_t byte, std::string& out);

  bool compatible_;
  State state_ = State::kBefore;
  bool has_space_ = false;
  bool has_quote_ = false;  // kAttribute: a quote stands before the space
  size_t num_matched_ = 0;  // kAttribute: bytes of ` string="`
};

}  // namespace deepinfer
