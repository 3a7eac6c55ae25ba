// SPDX-License-Identifier: MIT
#include "net/url_fetch.h"

#include <arpa/inet.h>
#include <netdb.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "net/http_client.h"

namespace deepinfer {
namespace {

bool redirects(int status) { return status == 301 || status == 302 || status == 303 || status == 307 || status == 308; }

// The first address if all may be used: a name with one bad address among good ones is not to be trusted.
Result<std::string> checked_address(const Url& url, const UrlFetchOptions& options) {
  auto addresses = options.resolve ? options.resolve(url.host) : resolve_host(url.host);
  if (!addresses.ok() || addresses->empty()) return unavailable("the host's name cannot be resolved");
  for (const std::string& address : *addresses)
    if (!options.may_connect(address)) return invalid_argument("the host's address is not one of the public internet");
  return addresses->front();
}

Result<HttpResponse> get(const Url& url, const UrlFetchOptions& options, const HttpFields& fields, int64_t left_ms) {
  ASSIGN_OR_RETURN(const std::string address, checked_address(url, options));
  auto connected = HttpClient::connect(address, url.port, left_ms, options.bytes_max);
  if (!connected.ok()) return unavailable("the host cannot be reached");
  HttpClient client = std::move(connected).value();
  client.give_up_after(left_ms);
  if (url.is_secure) {
    std::shared_ptr<const TlsTrust> trust = options.trust;
    if (!trust) { ASSIGN_OR_RETURN(trust, TlsTrust::load()); }
    TRY(client.secure(*trust, url.host));
  }
  std::string request = "GET " + url.target + " HTTP/1.1\r\nHost: " + url.authority() +
                        "\r\nUser-Agent: deepinfer\r\nAccept: image/*\r\nConnection: close\r\n";
  for (const auto& [name, value] : fields) request += name + ": " + value + "\r\n";
  TRY(client.send(request + "\r\n"));
  return client.receive();
}

}  // namespace

Result<std::vector<std::string>> resolve_host(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &wanted, &found) != 0) return not_found("no address for " + host);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    char text[INET6_ADDRSTRLEN] = "";
    const void* address =
        at->ai_family == AF_INET    ? static_cast<const void*>(&reinterpret_cast<sockaddr_in*>(at->ai_addr)->sin_addr)
        : at->ai_family == AF_INET6 ? static_cast<const void*>(&reinterpret_cast<sockaddr_in6*>(at->ai_addr)->sin6_addr)
                                    : nullptr;
    if (address && inet_ntop(at->ai_family, address, text, sizeof text)) addresses.emplace_back(text);
  }
  return addresses;
}

Result<std::string> fetch_url(const std::string& text, const UrlFetchOptions& options, const HttpFields& fields) {
  ASSIGN_OR_RETURN(Url url, parse_url(text));
  const SystemClock clock;
  const int64_t end_ns = clock.monotonic_ns() + options.timeout_ms * 1'000'000;
  for (int num_redirects = 0;; ++num_redirects) {
    const int64_t left_ms = (end_ns - clock.monotonic_ns()) / 1'000'000;
    if (left_ms <= 0) return unavailable("it took too long");
    ASSIGN_OR_RETURN(HttpResponse response, get(url, options, fields, left_ms));
    if (response.status == 200) return std::move(response.body);
    if (!redirects(response.status)) return invalid_argument("the host answered " + std::to_string(response.status));
    if (num_redirects == options.redirects_max) return invalid_argument("too many redirects");
    const bool was_secure = url.is_secure;
    ASSIGN_OR_RETURN(url, resolve_url(url, response.field("Location")));
    if (was_secure && !url.is_secure) return invalid_argument("a redirect leads from https to http");
  }
}

}  // namespace deepinfer
