// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "base/clock.h"

namespace deepinfer {
namespace {
std::atomic<LogLevel> least_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kHuman};
constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

std::string human_line(LogLevel level, std::string_view message, const Json::Object& fields) {
  std::string line;
  if (level >= LogLevel::kWarning) line += std::string(kLevelNames[static_cast<int>(level)]) + ": ";
  line += message;
  for (const auto& [key, value] : fields) {
    line += "  " + key + "=";
    append_json(line, value);
  }
  return line;
}

std::string json_line(LogLevel level, std::string_view message, const Json::Object& fields) {
  Json::Object record{
      {"time_ns", SystemClock().unix_ns()}, {"level", kLevelNames[static_cast<int>(level)]}, {"message", message}};
  record.insert(record.end(), fields.begin(), fields.end());
  return to_json(record);
}
}  // namespace

void set_log(LogLevel least, LogFormat format) {
  least_level = least;
  log_format = format;
}

void log_line(LogLevel level, std::string_view message, const Json::Object& fields) {
  if (level < least_level.load()) return;
  const std::string line =
      (log_format.load() == LogFormat::kJson ? json_line(level, message, fields) : human_line(level, message, fields)) +
      "\n";
  // One write per line keeps lines of several threads whole; a failing stderr has nowhere to be reported.
  [[maybe_unused]] const ssize_t written = ::write(2, line.data(), line.size());
}

}  // namespace deepinfer
