// SPDX-License-Identifier: MIT
#include "net/url.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace deepinfer {
namespace {

constexpr size_t kUrlBytesMax = 8192;

bool is_name(std::string_view host) {
  return !host.empty() && host.size() <= 253 && std::ranges::all_of(host, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
  });
}

Result<int> read_port(std::string_view digits) {
  int port = 0;
  for (const char c : digits) {
    if (c < '0' || c > '9' || port > 65535) return invalid_argument("URL: expected a port number");
    port = port * 10 + (c - '0');
  }
  if (digits.empty() || port < 1 || port > 65535) return invalid_argument("URL: expected a port from 1 to 65535");
  return port;
}

struct V4Range {
  uint32_t first;
  int num_bits;
};
constexpr uint32_t v4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return a << 24 | b << 16 | c << 8 | d; }
constexpr V4Range kReservedV4[] = {{v4(0, 0, 0, 0), 8},      {v4(10, 0, 0, 0), 8},     {v4(100, 64, 0, 0), 10},
                                   {v4(127, 0, 0, 0), 8},    {v4(169, 254, 0, 0), 16}, {v4(172, 16, 0, 0), 12},
                                   {v4(192, 0, 0, 0), 24},   {v4(192, 0, 2, 0), 24},   {v4(192, 88, 99, 0), 24},
                                   {v4(192, 168, 0, 0), 16}, {v4(198, 18, 0, 0), 15},  {v4(198, 51, 100, 0), 24},
                                   {v4(203, 0, 113, 0), 24}, {v4(224, 0, 0, 0), 4},    {v4(240, 0, 0, 0), 4}};

bool is_public_v4(uint32_t address) {
  return std::ranges::none_of(kReservedV4, [&](const V4Range& range) {
    return (address >> (32 - range.num_bits)) == (range.first >> (32 - range.num_bits));
  });
}

// Global unicast (2000::/3) without the parts of it that lead elsewhere.
bool is_public_v6(const std::array<uint8_t, 16>& a) {
  const auto group = [&](int i) { return static_cast<uint16_t>(a[2 * i] << 8 | a[2 * i + 1]); };
  if ((a[0] & 0xE0) != 0x20) return false;                     // also the mapped, translated and local forms
  if (group(0) == 0x2001 && group(1) < 0x200) return false;    // protocol assignments, Teredo among them
  if (group(0) == 0x2001 && group(1) == 0x0DB8) return false;  // documentation
  if (group(0) == 0x3FFF && group(1) < 0x1000) return false;   // documentation
  return group(0) != 0x2002;                                   // 6to4 holds an IPv4 address
}

}  // namespace

std::string Url::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (is_secure ? 443 : 80) ? name : name + ":" + std::to_string(port);
}

Result<Url> parse_url(std::string_view text) {
  if (text.size() > kUrlBytesMax) return invalid_argument("URL: longer than 8192 bytes");
  if (std::ranges::any_of(text, [](char c) { return c <= ' ' || c == 0x7F || c == '\\'; }))
    return invalid_argument("URL: white space, control characters and backslashes are not allowed");
  Url url;
  std::string lower(text.substr(0, 8));
  std::ranges::transform(lower, lower.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  url.is_secure = lower.starts_with("https://");
  if (!url.is_secure && !lower.starts_with("http://")) return invalid_argument("URL: expected http:// or https://");
  text.remove_prefix(url.is_secure ? 8 : 7);
  text = text.substr(0, text.find('#'));
  const size_t end = std::min(text.find_first_of("/?"), text.size());
  std::string_view authority = text.substr(0, end);
  if (end < text.size()) url.target = (text[end] == '?' ? "/" : "") + std::string(text.substr(end));
  if (authority.find('@') != std::string_view::npos) return invalid_argument("URL: a user name is not allowed");
  url.port = url.is_secure ? 443 : 80;
  const size_t bracket = authority.starts_with('[') ? authority.find(']') : std::string_view::npos;
  const size_t colon = authority.find(':', bracket == std::string_view::npos ? 0 : bracket);
  if (colon != std::string_view::npos) { ASSIGN_OR_RETURN(url.port, read_port(authority.substr(colon + 1))); }
  const std::string_view host = authority.substr(0, colon);
  if (bracket != std::string_view::npos) {
    url.host = host.substr(1, bracket - 1);
    in6_addr parsed;
    if (bracket + 1 != host.size() || inet_pton(AF_INET6, url.host.c_str(), &parsed) != 1)
      return invalid_argument("URL: expected an IPv6 address in brackets");
    return url;
  }
  url.host = host;
  std::ranges::transform(url.host, url.host.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  if (!is_name(url.host)) return invalid_argument("URL: expected a host name or address");
  return url;
}

Result<Url> resolve_url(const Url& base, std::string_view location) {
  if (!location.starts_with('/')) return parse_url(location);
  const std::string origin = std::string(base.is_secure ? "https://" : "http://") + base.authority();
  if (location.starts_with("//")) return parse_url((base.is_secure ? "https:" : "http:") + std::string(location));
  return parse_url(origin + std::string(location));
}

bool is_public_address(const std::string& address) {
  in_addr four;
  if (inet_pton(AF_INET, address.c_str(), &four) == 1) return is_public_v4(ntohl(four.s_addr));
  in6_addr six;
  if (inet_pton(AF_INET6, address.c_str(), &six) != 1) return false;
  std::array<uint8_t, 16> bytes;
  std::memcpy(bytes.data(), &six, bytes.size());
  return is_public_v6(bytes);
}

}  // namespace deepinfer
