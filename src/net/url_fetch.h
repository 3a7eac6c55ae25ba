// SPDX-License-Identifier: MIT
// GETs what a client's URL names, without becoming the client's arm into the network that this server stands in: names
// are resolved once and the connection goes to the address that was checked; every redirect starts over; bytes, time
// and redirects are bounded; no cookies, no credentials, no proxies. Blocks. Thread: any.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/http_message.h"
#include "net/tls.h"
#include "net/url.h"

namespace deepinfer {

struct UrlFetchOptions {
  size_t bytes_max = size_t{32} << 20;
  int64_t timeout_ms = 10'000;  // of all together
  int redirects_max = 3;
  std::function<Result<std::vector<std::string>>(const std::string& host)> resolve;  // default: the system's
  std::function<bool(const std::string& address)> may_connect = is_public_address;
  std::shared_ptr<const TlsTrust> trust;  // of https; default: the system's, loaded when it is first needed
};

// Addresses of a name, or the address itself. Errors: not_found.
Result<std::vector<std::string>> resolve_host(const std::string& host);

// `fields` are sent along (a trace). Errors: invalid_argument (the URL, an address that may not be used, an answer that
// is not 200), resource_exhausted (too large), unavailable. Messages name no address: what this machine's network looks
// like is not the client's to learn.
Result<std::string> fetch_url(const std::string& url, const UrlFetchOptions& options, const HttpFields& fields = {});

}  // namespace deepinfer
