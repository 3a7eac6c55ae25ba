// SPDX-License-Identifier: MIT
// A failed status as the error a client reads.
#pragma once

#include "base/status.h"
#include "protocol/request_error.h"

namespace deepinfer {

// invalid_argument and unimplemented 400, resource_exhausted and unavailable 503, the rest 500 with a message that
// tells nothing of the inside.
RequestError request_error_of(const Status& status);
RequestError request_error(int http_status, std::string message, std::string param = "");

}  // namespace deepinfer
