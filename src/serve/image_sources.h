// SPDX-License-Identifier: MIT
// Images that a request names by address, read before its prompt is made. Where the operator has not allowed that, they
// are left as they are and refused later. Blocks; a preparer's thread.
#pragma once

#include "chat/chat_request.h"
#include "net/url_fetch.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

// Puts the bytes into the place of each http(s) address. `fields` go along with every fetch. Refusal: what could not be
// had, without a word about this machine's network; more bytes than the limits of a request's images.
Refusal fetch_images(Conversation& conversation, const UrlFetchOptions& options, const RequestLimits& limits,
                     const HttpFields& fields);

}  // namespace deepinfer
