// SPDX-License-Identifier: MIT
// A session fed with anything fails or waits, and never gives out text that no handshake protects. URLs that are taken
// read back as themselves.
#include <cstdint>

#include "base/check.h"
#include "base/fuzz.h"
#include "net/tls.h"
#include "net/url.h"

namespace deepinfer {

int fuzz_tls(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const std::shared_ptr<const TlsTrust> kTrust = TlsTrust::load().value();
  TlsSession session(*kTrust, "service.test");
  std::string plain;
  (void)session.open(bytes.substr(0, size / 2), plain);
  (void)session.open(bytes.substr(size / 2), plain);
  CHECK(plain.empty());
  (void)session.take_sealed();
  if (const auto url = parse_url(bytes); url.ok()) {
    CHECK(!url.value().host.empty() && url.value().target.starts_with('/') && url.value().port > 0);
    const std::string again =
        (url.value().is_secure ? "https://" : "http://") + url.value().authority() + url.value().target;
    CHECK(parse_url(again).ok() && parse_url(again).value() == url.value());
  }
  (void)is_public_address(std::string(bytes.substr(0, 60)));
  return 0;
}

}  // namespace deepinfer
