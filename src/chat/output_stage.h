// SPDX-License-Identifier: MIT
// The state machine of an answer as a table: in each stage, the markers to look for in order of precedence, what each
// does and leads to, and what happens to all other bytes. Two tables: the original's, and ours, which also reads
// malformed markup (an unclosed call, a missing attribute, prose inside a call block) without losing text.
// Source of the rules: chat.md 4.2. Immutable after building; built once per request since stop sequences differ.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "chat/chat_request.h"
#include "chat/marker.h"

namespace deepinfer {

enum class Stage : uint8_t {
  kReasoningStart,  // as kReasoning, while leading newlines are dropped
  kReasoning,
  kContentStart,  // as kContent, while leading newlines are dropped
  kContent,
  kJson,           // JSON mode: inside the value
  kAfterJson,      // JSON mode: after the closing fence
  kBlock,          // in a call block, between calls
  kName,           // the function's name
  kArguments,      // in a call, between parameters
  kParameterName,  // read by ParameterName, which has no markers
  kParameterKind,  // between the name and the value
  kStringValue,
  kJsonValue,
  kDone,
  // Ours only: the inside of tags, so that what is no tag can be given back as text.
  kBlockTag,      // after `<` DSML between calls
  kBlockEndTag,   // after `</` DSML between calls
  kNameTag,       // after the name, up to `>`
  kCallTag,       // after `<` DSML inside a call
  kCallEndTag,    // after `</` DSML inside a call
  kValueEndTag,   // after `</` DSML that ended a value
  kRawArguments,  // a JSON object written directly into the call
};
inline constexpr size_t kNumStages = static_cast<size_t>(Stage::kRawArguments) + 1;

enum class Effect : uint8_t {
  kDrop,
  kText,          // emit as answer text
  kReasoning,     // emit as reasoning
  kSpace,         // JSON mode: one space for all the text outside the value
  kStopSequence,  // the answer ends here; `index` of the transition names the sequence
  kBeginCall,     // forget the name collected so far
  kNameByte,
  kCallNamed,        // emit the call
  kOpenArgument,     // emit `{` or `, `
  kOpenRaw,          // emit `{`; after a parameter it is stray text instead
  kArgument,         // emit as argument text, raw
  kEscapedArgument,  // emit as argument text, escaped for a JSON string
  kQuote,            // emit `"` as argument text
  kEmptyString,      // emit `""`
  kCloseArguments,   // emit `}` or `{}`
  kCloseAndBegin,    // as kCloseArguments, then kBeginCall
  kTagByte,          // keep; what turns out to be no tag becomes stray text
  kTagEnd,           // forget the kept bytes
  kStrayTag,         // the kept bytes and the marker's own are stray text
  kStray,            // keep as stray text: emitted as answer text once no call is open
};

struct Transition {
  Marker marker;
  Stage next = Stage::kDone;
  Effect effect = Effect::kDrop;
  uint32_t index = 0;
};

struct StageRules {
  std::vector<Transition> transitions;
  Effect other = Effect::kDrop;
  std::array<bool, 256> is_live = {};  // bytes that can begin a marker; all others are skipped over
};

struct OutputStages {
  std::array<StageRules, kNumStages> rules;
  Stage first = Stage::kContentStart;
  const StageRules& operator[](Stage stage) const { return rules[static_cast<size_t>(stage)]; }
};

// The spellings are those of the loaded tokenizer's control tokens.
OutputStages make_output_stages(const ParsingOptions& options, bool recipe_compatible, std::string_view think_end,
                                std::string_view dsml);

}  // namespace deepinfer
