// SPDX-License-Identifier: MIT
#include "protocol/request_property.h"

namespace deepinfer {

int fuzz_chat_request(const uint8_t* data, size_t size) { return check_request("chat", data, size); }

}  // namespace deepinfer
