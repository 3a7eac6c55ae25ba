// SPDX-License-Identifier: MIT
// deepinfer tokenize: text to token ids and back, one JSON object a line.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "tokenizer/tokenizer.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/tokenizer_option.h"

namespace deepinfer {
namespace {

struct TokenizeArguments {
  std::string tokenizer = "mini";
  bool plain = false;
};

Json json_of(const std::vector<TokenId>& ids) {
  Json::Array array(ids.begin(), ids.end());
  return array;
}

Result<std::string> decoded(const Tokenizer& tokenizer, const Json& ids) {
  if (!ids.is_array())
    return invalid_argument(fmt::format("decode_ids: expected an array, found {}", to_string(ids.kind())));
  std::vector<TokenId> tokens;
  for (const Json& id : ids.as_array()) {
    if (id.kind() != Json::Kind::kInt || id.as_int() < 0 || id.as_int() >= tokenizer.vocab_size())
      return invalid_argument(fmt::format("decode_ids[{}]: expected an id in [0, {}), found {}", tokens.size(),
                                          tokenizer.vocab_size(), to_json(id)));
    tokens.push_back(static_cast<TokenId>(id.as_int()));
  }
  return tokenizer.decode(tokens);
}

Status answer(const Tokenizer& tokenizer, const Json& request, Json& out) {
  if (const Json* ids = request.find("decode_ids")) {
    ASSIGN_OR_RETURN(std::string text, decoded(tokenizer, *ids));
    out.set("decode_text", std::move(text));
    return {};
  }
  const Json* text = request.find("text");
  if (text == nullptr || !text->is_string())
    return invalid_argument("expected an object with a string \"text\" or an array \"decode_ids\"");
  const std::vector<TokenId> ids = tokenizer.encode(text->as_string());
  const std::vector<TokenId> with_added = tokenizer.encode_with_added(text->as_string());
  out.set("ids", json_of(ids));
  if (with_added != ids) out.set("ids_with_added", json_of(with_added));
  return {};
}

Status tokenize(const TokenizeArguments& arguments) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, open_tokenizer(arguments.tokenizer));
  if (!arguments.plain) {
    answer_json_lines([&](const Json& request, Json& out) { return answer(*tokenizer, request, out); });
    return {};
  }
  ASSIGN_OR_RETURN(const std::string text, read_file("-"));
  std::cout << to_json(json_of(tokenizer->encode(text))) << '\n' << std::flush;
  return {};
}

}  // namespace

Command tokenize_command() {
  const auto arguments = std::make_shared<TokenizeArguments>();
  return {.name = "tokenize",
          .summary = "text to token ids and back, one JSON object a line",
          .examples =
              "  echo '{\"text\":\"Hello\"}' | deepinfer tokenize --tokenizer checkpoint/\n"
              "  deepinfer tokenize --plain < story.txt > ids.json\n",
          .declare =
              [arguments](OptionSet& options) {
                declare_tokenizer_option(options, arguments->tokenizer);
                options.flag("--plain", arguments->plain, "read raw text and print its ids as one JSON array");
              },
          .run = [arguments] { return exit_status(tokenize(*arguments)); }};
}

}  // namespace deepinfer
