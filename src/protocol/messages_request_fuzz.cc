// SPDX-License-Identifier: MIT
#include "protocol/request_property.h"

namespace deepinfer {

int fuzz_messages_request(const uint8_t* data, size_t size) { return check_request("messages", data, size); }

}  // namespace deepinfer
