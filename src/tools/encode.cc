// SPDX-License-Identifier: MIT
// deepinfer encode: API requests to prompts and token ids, one JSON object a line.
#include <memory>
#include <string>

#include "base/json.h"
#include "protocol/encode_record.h"
#include "tools/command.h"
#include "tools/json_lines.h"
#include "tools/tokenizer_option.h"

namespace deepinfer {
namespace {

struct EncodeArguments {
  std::string tokenizer = "mini";
  std::string compat = "none";
};

Status encode(const EncodeArguments& arguments) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Tokenizer> tokenizer, open_tokenizer(arguments.tokenizer));
  ASSIGN_OR_RETURN(const RecordEncoder encoder,
                   RecordEncoder::create(std::move(tokenizer), arguments.compat == "recipe"));
  answer_json_lines([&](const Json& line, Json& out) -> Status {
    ASSIGN_OR_RETURN(Json result, encoder.encode(line));
    out.set("result", std::move(result));
    return {};
  });
  return {};
}

}  // namespace

Command encode_command() {
  const auto arguments = std::make_shared<EncodeArguments>();
  return {.name = "encode",
          .summary = "API requests to prompts, token ids and settings, one JSON object a line",
          .examples =
              "  echo "
              "'{\"protocol\":\"chat\",\"request\":{\"model\":\"DeepSeek-V4.1-Flash\",\"messages\":[{\"role\":\"user\","
              "\"content\":\"Hi\"}]}}' | deepinfer encode\n"
              "  zcat requests.jsonl.gz | deepinfer encode --compat recipe --tokenizer tokenizer.json.gz\n",
          .declare =
              [arguments](OptionSet& options) {
                declare_tokenizer_option(options, arguments->tokenizer);
                options.choice("--compat", arguments->compat, {"none", "recipe"},
                               "recipe: accepts, refuses and samples exactly as deepseek-recipe 0.2.0 (default none)");
              },
          .run = [arguments] { return exit_status(encode(*arguments)); }};
}

}  // namespace deepinfer
