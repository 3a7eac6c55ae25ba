// SPDX-License-Identifier: MIT
// deepinfer_codec.h: grammars and matchers.
#include <algorithm>

#include "bindings/c/c_boundary.h"
#include "bindings/c/codec_handles.h"

using namespace deepinfer;

namespace {

constexpr std::string_view kSettings[] = {"json_schema", "regex",       "ebnf",    "choice",
                                          "any_order",   "white_space", "lenient", "after_thinking"};

Result<bool> flag_setting(const Json& settings, std::string_view name, bool fallback) {
  const Json* value = settings.find(name);
  if (value == nullptr) return fallback;
  if (!value->is_bool()) return invalid_argument("settings: \"" + std::string(name) + "\" is no boolean");
  return value->as_bool();
}

Result<GrammarSource> source_of(const Json& settings) {
  GrammarSource source;
  int num_given = 0;
  if (const Json* schema = settings.find("json_schema")) {
    ++num_given;
    source = {GrammarSource::Kind::kJsonSchema, to_json(*schema), {}};
  }
  for (const auto& [name, kind] :
       {std::pair<std::string_view, GrammarSource::Kind>{"regex", GrammarSource::Kind::kRegex},
        {"ebnf", GrammarSource::Kind::kEbnf}}) {
    if (settings.find(name) == nullptr) continue;
    ++num_given;
    ASSIGN_OR_RETURN(std::string text, text_setting(settings, name, ""));
    source = {kind, std::move(text), {}};
  }
  if (const Json* choice = settings.find("choice")) {
    ++num_given;
    source = {GrammarSource::Kind::kChoice, "", {}};
    const bool are_texts = choice->is_array() && !choice->as_array().empty() &&
                           std::ranges::all_of(choice->as_array(), [](const Json& text) { return text.is_string(); });
    if (!are_texts) return invalid_argument("settings: \"choice\" is no list of texts");
    for (const Json& text : choice->as_array()) source.choices.push_back(text.as_string());
  }
  if (num_given != 1)
    return invalid_argument("settings: expected one of \"json_schema\", \"regex\", \"ebnf\" and \"choice\"");
  return source;
}

Result<AnswerTokens> tokens_of(const std::shared_ptr<const Tokenizer>& tokenizer) {
  ASSIGN_OR_RETURN(const OutputVocabulary vocabulary, OutputVocabulary::create(tokenizer));
  return AnswerTokens::of(vocabulary.controls);
}

Status compile(const AnswerSpec& spec, const AnswerTokens& tokens, GrammarTables& tables,
               const std::shared_ptr<const Tokenizer>& tokenizer, const GrammarOptions& options,
               deepinfer_grammar** out) {
  auto grammar = compile_answer(spec, tokens, tables.index(tokenizer), options);
  TRY(grammar.status());
  if ((*grammar)->is_empty()) return invalid_argument("no text satisfies the grammar");
  *out = new deepinfer_grammar{std::move(*grammar)};
  return {};
}

}  // namespace

std::shared_ptr<const TokenIndex> GrammarTables::index(const std::shared_ptr<const Tokenizer>& tokenizer) {
  std::call_once(once_, [&] { index_ = std::make_shared<const TokenIndex>(tokenizer); });
  return index_;
}

deepinfer_code deepinfer_grammar_new(const deepinfer_tokenizer* tokenizer, const char* settings, size_t size,
                                     deepinfer_grammar** out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (tokenizer == nullptr) return invalid_argument("tokenizer is NULL");
    ASSIGN_OR_RETURN(const Json read, settings_argument(settings, size, kSettings));
    AnswerSpec spec;
    ASSIGN_OR_RETURN(spec.content, source_of(read));
    ASSIGN_OR_RETURN(spec.starts_in_reasoning, flag_setting(read, "after_thinking", false));
    GrammarOptions options;
    ASSIGN_OR_RETURN(const bool any_order, flag_setting(read, "any_order", false));
    options.order = any_order ? PropertyOrder::kAny : PropertyOrder::kSchema;
    ASSIGN_OR_RETURN(options.flexible_space, flag_setting(read, "white_space", true));
    ASSIGN_OR_RETURN(options.lenient, flag_setting(read, "lenient", false));
    ASSIGN_OR_RETURN(const AnswerTokens tokens, tokens_of(tokenizer->tokenizer));
    return compile(spec, tokens, *tokenizer->tables, tokenizer->tokenizer, options, out);
  });
}

deepinfer_code deepinfer_grammar_for_request(const deepinfer_request* request, deepinfer_grammar** out,
                                             deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (request == nullptr) return invalid_argument("request is NULL");
    const RequestState& state = *request->state;
    if (state.encoded.refusal) return invalid_argument("the request was refused");
    const ChatRequest& chat = state.encoded.decoded.chat;
    ASSIGN_OR_RETURN(const AnswerSpec spec, AnswerSpec::of(chat));
    if (spec.is_free()) return {};
    GrammarOptions options;
    options.flexible_space = !chat.inference.without_space;
    const OutputVocabulary& vocabulary = state.codec->vocabulary;
    return compile(spec, AnswerTokens::of(vocabulary.controls), *state.codec->tables, vocabulary.tokenizer, options,
                   out);
  });
}

void deepinfer_grammar_free(deepinfer_grammar* grammar) { delete grammar; }

size_t deepinfer_grammar_num_words(const deepinfer_grammar* grammar) {
  return grammar == nullptr ? 0 : grammar->grammar->index().num_words();
}

deepinfer_code deepinfer_matcher_new(const deepinfer_grammar* grammar, deepinfer_matcher** out,
                                     deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (grammar == nullptr) return invalid_argument("grammar is NULL");
    *out = new deepinfer_matcher{Matcher(grammar->grammar)};
    return {};
  });
}

deepinfer_code deepinfer_matcher_fork(const deepinfer_matcher* matcher, deepinfer_matcher** out,
                                      deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (matcher == nullptr) return invalid_argument("matcher is NULL");
    *out = new deepinfer_matcher(*matcher);
    return {};
  });
}

void deepinfer_matcher_free(deepinfer_matcher* matcher) { delete matcher; }

deepinfer_code deepinfer_matcher_accept(deepinfer_matcher* matcher, const int32_t* ids, size_t num_ids,
                                        size_t* num_accepted, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (num_accepted == nullptr) return invalid_argument("num_accepted is NULL");
    *num_accepted = 0;
    if (matcher == nullptr) return invalid_argument("matcher is NULL");
    ASSIGN_OR_RETURN(const std::span<const int32_t> tokens, ids_argument(ids, num_ids));
    for (const int32_t token : tokens) {
      if (!matcher->matcher.accept(token)) break;
      ++*num_accepted;
    }
    return {};
  });
}

deepinfer_code deepinfer_matcher_rollback(deepinfer_matcher* matcher, size_t num_ids, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (matcher == nullptr) return invalid_argument("matcher is NULL");
    if (num_ids > matcher->matcher.num_tokens())
      return invalid_argument("fewer tokens have been accepted than are to be taken back");
    matcher->matcher.rollback(num_ids);
    return {};
  });
}

deepinfer_code deepinfer_matcher_fill_masks(const deepinfer_matcher* matcher, const int32_t* drafts, size_t num_drafts,
                                            uint32_t* words, size_t num_words, size_t* num_rows,
                                            deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (num_rows == nullptr || words == nullptr) return invalid_argument("words or num_rows is NULL");
    *num_rows = 0;
    if (matcher == nullptr) return invalid_argument("matcher is NULL");
    ASSIGN_OR_RETURN(const std::span<const int32_t> tokens, ids_argument(drafts, num_drafts));
    const size_t row_words = matcher->matcher.grammar()->index().num_words();
    if (num_words / row_words < num_drafts + 1)
      return invalid_argument("words: too few for a row for each draft and one");
    TokenMasks masks(static_cast<int64_t>(num_drafts) + 1, matcher->matcher.grammar()->index().vocab_size());
    ASSIGN_OR_RETURN(*num_rows, matcher->matcher.fill_masks(tokens, masks, 0));
    for (size_t i = 0; i < *num_rows; ++i) std::ranges::copy(masks.row(static_cast<int64_t>(i)), words + i * row_words);
    return {};
  });
}

int32_t deepinfer_matcher_may_end(const deepinfer_matcher* matcher) {
  return matcher != nullptr && matcher->matcher.is_accepting() ? 1 : 0;
}

int32_t deepinfer_matcher_has_ended(const deepinfer_matcher* matcher) {
  return matcher != nullptr && matcher->matcher.is_ended() ? 1 : 0;
}

deepinfer_code deepinfer_matcher_forced_ids(const deepinfer_matcher* matcher, deepinfer_ids* out,
                                            deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (matcher == nullptr) return invalid_argument("matcher is NULL");
    return copy_to(matcher->matcher.forced_tokens(), *out);
  });
}
