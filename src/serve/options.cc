// SPDX-License-Identifier: MIT
#include "serve/options.h"

#include <cstdlib>
#include <string_view>

namespace deepinfer {

std::optional<ApiKey> api_key_of_environment() {
  const char* value = std::getenv("DEEPINFER_API_KEY");
  const std::string_view key(value ? value : "");
  if (key.empty()) return {};
  ApiKey made;
  made.name = "environment";
  made.digest = sha256({reinterpret_cast<const uint8_t*>(key.data()), key.size()});
  return made;
}

std::string admin_key_of_environment() {
  const char* value = std::getenv("DEEPINFER_ADMIN_KEY");
  return value ? value : "";
}

}  // namespace deepinfer
