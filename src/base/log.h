// SPDX-License-Identifier: MIT
// Log lines to standard error, human or JSON. Never prompt text. Any thread. A line waits until it is written, unless
// there is a LogQueue (log_queue.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace deepinfer {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kHuman, kJson };

void set_log(LogLevel least, LogFormat format);
void log_line(LogLevel level, std::string_view message, const Json::Object& fields = {});
int64_t num_lost_log_lines();  // that could not be written, since the program began

}  // namespace deepinfer
