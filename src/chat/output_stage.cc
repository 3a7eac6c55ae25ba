// SPDX-License-Identifier: MIT
#include "chat/output_stage.h"

#include <utility>

namespace deepinfer {
namespace {

class Builder {
 public:
  Builder(const ParsingOptions& options, bool recipe_compatible, std::string_view think_end, std::string_view dsml)
      : options_(options), compatible_(recipe_compatible), think_end_(think_end), dsml_(dsml) {}

  OutputStages build() {
    add_reasoning(Stage::kReasoningStart, true);
    add_reasoning(Stage::kReasoning, false);
    add_content(Stage::kContentStart, true);
    add_content(Stage::kContent, false);
    add_json();
    if (compatible_) {
      add_calls();
    } else {
      add_tolerant_calls();
    }
    stages_.first = first_stage();
    for (StageRules& rules : stages_.rules) mark_live_bytes(rules);
    return std::move(stages_);
  }

 private:
  using Kind = Marker::Kind;

  StageRules& rules(Stage stage) { return stages_.rules[static_cast<size_t>(stage)]; }
  Stage block_entry() const { return compatible_ ? Stage::kBlock : Stage::kBlockTag; }

  void add(Stage stage, Marker marker, Stage next, Effect effect, uint32_t index = 0) {
    marker.finish();
    rules(stage).transitions.push_back({std::move(marker), next, effect, index});
  }
  void add_plain(Stage stage, std::string_view bytes, Stage next, Effect effect) {
    add(stage, Marker().plain(bytes), next, effect);
  }
  Marker tag(std::string_view opening, Kind kind = Kind::kAnywhere) const {
    return Marker(kind).plain(opening).control(dsml_);
  }
  void add_stops(Stage stage) {
    for (size_t i = 0; i < options_.stop_sequences.size(); ++i) {
      if (options_.stop_sequences[i].empty()) continue;  // decoders refuse them; an empty marker would match anywhere
      add(stage, Marker().plain(options_.stop_sequences[i]), Stage::kDone, Effect::kStopSequence,
          static_cast<uint32_t>(i));
    }
  }
  void add_block_start(Stage stage) {
    if (options_.parse_tool_calls) add(stage, tag("<", Kind::kNewlinesBefore), block_entry(), Effect::kDrop);
  }

  void add_reasoning(Stage stage, bool drops_newlines) {
    rules(stage).other = Effect::kReasoning;
    add_block_start(stage);
    if (drops_newlines) add(stage, Marker(Kind::kFirstByte).plain("\n"), stage, Effect::kDrop);
    add(stage, Marker(Kind::kNewlinesBefore).control(think_end_), Stage::kContentStart, Effect::kDrop);
  }

  void add_content(Stage stage, bool drops_newlines) {
    rules(stage).other = options_.parse_json_output ? Effect::kSpace : Effect::kText;
    if (options_.parse_json_output) {
      add_plain(stage, "```json\n", Stage::kJson, Effect::kDrop);
      add_plain(stage, "```\n", Stage::kJson, Effect::kDrop);
      add_plain(stage, "{", Stage::kJson, Effect::kText);
      add_plain(stage, "[", Stage::kJson, Effect::kText);
    } else {
      add_stops(stage);
    }
    add_block_start(stage);
    if (drops_newlines) add(stage, Marker(Kind::kFirstByte).plain("\n"), stage, Effect::kDrop);
    add(stage, Marker().control(think_end_), Stage::kContent, Effect::kDrop);
  }

  void add_json() {
    rules(Stage::kJson).other = Effect::kText;
    add_stops(Stage::kJson);
    add_plain(Stage::kJson, "\n```", Stage::kAfterJson, Effect::kDrop);
    rules(Stage::kAfterJson).other = Effect::kSpace;
    add_block_start(Stage::kAfterJson);
  }

  void add_values() {
    rules(Stage::kStringValue).other = Effect::kEscapedArgument;
    rules(Stage::kJsonValue).other = Effect::kArgument;
    const Stage next = compatible_ ? Stage::kArguments : Stage::kValueEndTag;
    add(Stage::kStringValue, tag("</"), next, Effect::kQuote);
    add(Stage::kJsonValue, tag("</"), next, Effect::kDrop);
    add_plain(Stage::kParameterKind, "true\">", Stage::kStringValue, Effect::kQuote);
    add_plain(Stage::kParameterKind, "false\">", Stage::kJsonValue, Effect::kDrop);
  }

  void add_calls() {
    add_plain(Stage::kBlock, "invoke name=\"", Stage::kName, Effect::kBeginCall);
    add(Stage::kBlock, tag("</").plain("tool_calls>"), Stage::kDone, Effect::kDrop);
    add(Stage::kBlock, tag("</").plain(" calls>"), Stage::kDone, Effect::kDrop);
    rules(Stage::kName).other = Effect::kNameByte;
    add_plain(Stage::kName, "\"", Stage::kArguments, Effect::kCallNamed);
    add_plain(Stage::kArguments, "parameter name=", Stage::kParameterName, Effect::kOpenArgument);
    add(Stage::kArguments, tag("</"), Stage::kBlock, Effect::kCloseArguments);
    add_values();
  }

  // Tag names are met by their last word, so that `calls>` ends a block spelled ` calls`, `tool_calls` or
  // `function_calls`.
  void add_tolerant_calls() {
    rules(Stage::kBlock).other = Effect::kStray;
    add(Stage::kBlock, tag("<", Kind::kNewlinesBefore), Stage::kBlockTag, Effect::kDrop);
    add(Stage::kBlock, tag("</", Kind::kNewlinesBefore), Stage::kBlockEndTag, Effect::kDrop);
    add_tag_text(Stage::kBlockTag);
    add_plain(Stage::kBlockTag, "invoke name=\"", Stage::kName, Effect::kBeginCall);
    add_tag_end(Stage::kBlockTag, Stage::kBlock);
    add_tag_text(Stage::kBlockEndTag);
    add_plain(Stage::kBlockEndTag, "calls>", Stage::kDone, Effect::kTagEnd);
    add_tag_end(Stage::kBlockEndTag, Stage::kBlock);

    rules(Stage::kName).other = Effect::kNameByte;
    add_plain(Stage::kName, "\"", Stage::kNameTag, Effect::kCallNamed);
    add_plain(Stage::kName, ">", Stage::kArguments, Effect::kCallNamed);
    add(Stage::kName, Marker(Kind::kNewlinesBefore).plain("<").control(dsml_), Stage::kCallTag, Effect::kCallNamed);
    add_plain(Stage::kNameTag, ">", Stage::kArguments, Effect::kDrop);
    add_tags_of_call(Stage::kNameTag);
    add_call_body();
    add_values();
    add_plain(Stage::kParameterKind, ">", Stage::kStringValue, Effect::kQuote);
    add(Stage::kParameterKind, tag("</"), Stage::kValueEndTag, Effect::kEmptyString);
    add_plain(Stage::kValueEndTag, "invoke>", Stage::kBlock, Effect::kCloseArguments);
    add_plain(Stage::kValueEndTag, "calls>", Stage::kDone, Effect::kCloseArguments);
    add_plain(Stage::kValueEndTag, ">", Stage::kArguments, Effect::kDrop);
    add_plain(Stage::kValueEndTag, "\n", Stage::kArguments, Effect::kDrop);
    add_tags_of_call(Stage::kValueEndTag);
  }

  void add_call_body() {
    rules(Stage::kArguments).other = Effect::kStray;
    add_plain(Stage::kArguments, "{", Stage::kRawArguments, Effect::kOpenRaw);
    add_tags_of_call(Stage::kArguments);
    rules(Stage::kRawArguments).other = Effect::kArgument;
    add(Stage::kRawArguments, tag("</", Kind::kNewlinesBefore), Stage::kBlockEndTag, Effect::kDrop);

    add_tag_text(Stage::kCallTag);
    add_plain(Stage::kCallTag, "parameter name=", Stage::kParameterName, Effect::kOpenArgument);
    add_plain(Stage::kCallTag, "invoke name=\"", Stage::kName, Effect::kCloseAndBegin);
    add_tag_end(Stage::kCallTag, Stage::kArguments);
    add_tag_text(Stage::kCallEndTag);
    add_plain(Stage::kCallEndTag, "parameter>", Stage::kArguments, Effect::kTagEnd);
    add_plain(Stage::kCallEndTag, "calls>", Stage::kDone, Effect::kCloseArguments);
    add_plain(Stage::kCallEndTag, ">", Stage::kBlock, Effect::kCloseArguments);
    add_plain(Stage::kCallEndTag, "\n", Stage::kBlock, Effect::kCloseArguments);
  }

  void add_tags_of_call(Stage stage) {
    add(stage, tag("<", Kind::kNewlinesBefore), Stage::kCallTag, Effect::kDrop);
    add(stage, tag("</", Kind::kNewlinesBefore), Stage::kCallEndTag, Effect::kDrop);
  }
  void add_tag_text(Stage stage) { rules(stage).other = Effect::kTagByte; }
  void add_tag_end(Stage stage, Stage next) {
    add_plain(stage, ">", next, Effect::kTagEnd);
    add_plain(stage, "\n", next, Effect::kStrayTag);
  }

  Stage first_stage() const {
    if (options_.starts_in_tool_calls) return Stage::kBlock;
    if (!options_.thinking_stage) return options_.keep_leading_newlines ? Stage::kContent : Stage::kContentStart;
    switch (*options_.thinking_stage) {
      case ThinkingStage::kReasoningStart: return Stage::kReasoningStart;
      case ThinkingStage::kReasoningContinuation: return Stage::kReasoning;
      case ThinkingStage::kContentContinuation: return Stage::kContent;
    }
    return Stage::kContentStart;
  }

  static void mark_live_bytes(StageRules& rules) {
    for (const Transition& transition : rules.transitions) {
      rules.is_live[transition.marker.first_byte()] = true;
      if (transition.marker.kind() == Kind::kNewlinesBefore) rules.is_live['\n'] = true;
    }
  }

  const ParsingOptions& options_;
  const bool compatible_;
  const std::string_view think_end_, dsml_;
  OutputStages stages_;
};

}  // namespace

OutputStages make_output_stages(const ParsingOptions& options, bool recipe_compatible, std::string_view think_end,
                                std::string_view dsml) {
  return Builder(options, recipe_compatible, think_end, dsml).build();
}

}  // namespace deepinfer
