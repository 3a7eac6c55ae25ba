// SPDX-License-Identifier: MIT
#include "base/log.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <utility>

#include "base/clock.h"
#include "base/log_sink.h"

namespace deepinfer {
namespace {
std::atomic<LogLevel> least_level{LogLevel::kInfo};
std::atomic<LogFormat> log_format{LogFormat::kHuman};
std::atomic<int64_t> num_lost{0};
std::shared_ptr<LogSink> log_sink;  // with the atomic functions
constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

// Nobody reads more digits of a time or a size, and the shortest text of a double has up to 17.
Json rounded(const Json& value) {
  return value.kind() == Json::Kind::kDouble ? Json(std::round(value.as_double() * 1000) / 1000) : value;
}

std::string human_line(LogLevel level, std::string_view message, const Json::Object& fields) {
  std::string line;
  if (level >= LogLevel::kWarning) line += std::string(kLevelNames[static_cast<int>(level)]) + ": ";
  line += message;
  for (const auto& [key, value] : fields) {
    line += "  " + key + "=";
    append_json(line, rounded(value));
  }
  return line;
}

std::string json_line(LogLevel level, std::string_view message, const Json::Object& fields) {
  Json::Object record{
      {"time_ns", SystemClock().unix_ns()}, {"level", kLevelNames[static_cast<int>(level)]}, {"message", message}};
  for (const auto& [key, value] : fields) record.emplace_back(key, rounded(value));
  return to_json(record);
}
}  // namespace

void set_log(LogLevel least, LogFormat format) {
  least_level = least;
  log_format = format;
}

std::string log_text(LogLevel level, std::string_view message, const Json::Object& fields) {
  const bool is_json = log_format.load() == LogFormat::kJson;
  return (is_json ? json_line(level, message, fields) : human_line(level, message, fields)) + "\n";
}

void set_log_sink(std::shared_ptr<LogSink> sink) { std::atomic_store(&log_sink, std::move(sink)); }

void add_lost_log_lines(int64_t count) { num_lost += count; }

int64_t num_lost_log_lines() { return num_lost; }

void log_line(LogLevel level, std::string_view message, const Json::Object& fields) {
  if (level < least_level.load()) return;
  const std::string line = log_text(level, message, fields);
  if (const auto sink = std::atomic_load(&log_sink)) return sink->push(line);
  // One write per line keeps lines of several threads whole.
  if (::write(2, line.data(), line.size()) != static_cast<ssize_t>(line.size())) add_lost_log_lines(1);
}

}  // namespace deepinfer
