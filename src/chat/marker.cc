// SPDX-License-Identifier: MIT
#include "chat/marker.h"

#include "base/check.h"

namespace deepinfer {

Marker& Marker::append(std::string_view bytes, uint8_t origin) {
  bytes_ += bytes;
  origins_.resize(bytes_.size(), origin);
  return *this;
}

void Marker::finish() {
  CHECK(!bytes_.empty());
  failure_.assign(bytes_.size(), 0);
  size_t length = 0;
  for (size_t i = 1; i < bytes_.size(); ++i) {
    const auto same = [&](size_t at) { return bytes_[at] == bytes_[i] && origins_[at] == origins_[i]; };
    while (length > 0 && !same(length)) length = failure_[length - 1];
    if (same(length)) ++length;
    failure_[i] = static_cast<uint32_t>(length);
  }
}

}  // namespace deepinfer
