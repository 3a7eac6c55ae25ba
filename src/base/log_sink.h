// SPDX-License-Identifier: MIT
// Between log.h and log_queue.h: where finished lines go. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"

namespace deepinfer {

class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual void push(std::string_view line) = 0;  // with its line end; never waits
};

void set_log_sink(std::shared_ptr<LogSink> sink);  // null: standard error, directly
// The line as it is written, in the form that is set.
std::string log_text(LogLevel level, std::string_view message, const Json::Object& fields);
void add_lost_log_lines(int64_t count);

}  // namespace deepinfer
