// SPDX-License-Identifier: MIT
// The `format` keyword as languages. Sources: RFC 3339 (date, time, duration), 5321 (email), 1123 (hostname), 2673 and
// 4291 (addresses), 3986 and 3987 (uri, iri), 6570 (uri-template), 6901 (json-pointer), 9562 (uuid).
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

// Nothing for a format no draft defines (it then means nothing). unimplemented for the defined ones that no automaton
// decides (regex, idn-hostname, hostname with its A-labels). `lenient`: hostname without A-labels instead.
Result<std::optional<RegexId>> format_language(RegexPool& pool, std::string_view format, bool lenient);

}  // namespace deepinfer
