// SPDX-License-Identifier: MIT
// Log lines to standard error, human or JSON. Never prompt text. Any thread.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"

namespace deepinfer {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kHuman, kJson };

void set_log(LogLevel least, LogFormat format);
void log_line(LogLevel level, std::string_view message, const Json::Object& fields = {});

}  // namespace deepinfer
