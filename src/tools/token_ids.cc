// SPDX-License-Identifier: MIT
#include "tools/token_ids.h"

#include <fmt/format.h>

#include "base/json.h"

namespace deepinfer {

Result<std::vector<TokenId>> parse_token_ids(std::string_view json, int64_t vocab) {
  ASSIGN_OR_RETURN(const Json ids, parse_json(json));
  if (!ids.is_array())
    return invalid_argument(fmt::format("expected a JSON array of token ids, found {}", to_string(ids.kind())));
  std::vector<TokenId> tokens;
  for (const Json& id : ids.as_array()) {
    if (id.kind() != Json::Kind::kInt || id.as_int() < 0 || id.as_int() >= vocab)
      return invalid_argument(
          fmt::format("[{}]: expected an id in [0, {}), found {}", tokens.size(), vocab, to_json(id)));
    tokens.push_back(static_cast<TokenId>(id.as_int()));
  }
  return tokens;
}

}  // namespace deepinfer
