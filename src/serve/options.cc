// SPDX-License-Identifier: MIT
#include "serve/options.h"

#include <fmt/format.h>

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

Status check_origin(const std::string& origin) {
  const size_t colon = origin.find("://");
  const std::string_view host = colon == std::string::npos ? "" : std::string_view(origin).substr(colon + 3);
  const bool has_capitals = origin.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string::npos;
  if (colon > 0 && !host.empty() && !has_capitals && host.find_first_of("/?#* ") == std::string_view::npos) return {};
  return invalid_argument(
      fmt::format("--cors-origin: expected an origin as browsers send it, like https://pages.example or "
                  "http://localhost:3000 (small letters, no path, no / at its end), found '{}'",
                  origin));
}

}  // namespace deepinfer
