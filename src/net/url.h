// SPDX-License-Identifier: MIT
// Absolute http and https URLs. Strict: what two readers could understand differently is no URL here.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace deepinfer {

struct Url {
  bool is_secure = false;  // https
  std::string host;        // a name in lower case, or an IP address without brackets
  int port = 80;
  std::string target = "/";  // path and query
  bool operator==(const Url&) const = default;

  std::string authority() const;  // for the Host field
};

// Errors: invalid_argument. User names, fragments with a target behind them, white space, control characters and names
// that are not letters, digits, '.', '-' and '_' are refused. Source: RFC 3986.
Result<Url> parse_url(std::string_view text);
// A Location field, absolute or starting with '/', as seen from `base`.
Result<Url> resolve_url(const Url& base, std::string_view location);

// Whether an address is one of the public internet: not of this machine, a private or link-local network, a group, a
// documentation or otherwise reserved range, nor one of those inside an IPv6 form. False for what is no address.
// Source: the IANA special-purpose address registries for IPv4 (RFC 6890) and IPv6.
bool is_public_address(const std::string& address);

}  // namespace deepinfer
