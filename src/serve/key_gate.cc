// SPDX-License-Identifier: MIT
#include "serve/key_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "serve/request_error_of.h"

namespace deepinfer {
namespace {

RequestError too_many(const std::string& what, double wait_s) {
  return request_error(429, fmt::format("Rate limit reached: {}. Please try again in {} s.", what,
                                        static_cast<int64_t>(std::ceil(std::max(wait_s, 1.0)))));
}

}  // namespace

Refusal KeyGate::enter(const ApiKey& key, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  Usage& usage = usages_[key.name];
  const double requests_max = static_cast<double>(key.requests_per_minute);
  const double tokens_max = static_cast<double>(key.tokens_per_minute);
  if (usage.filled_ns < 0) {
    usage.requests = requests_max;
    usage.tokens = tokens_max;
    usage.filled_ns = now_ns;
  }
  const double minutes = static_cast<double>(now_ns - usage.filled_ns) / 60e9;
  usage.filled_ns = now_ns;
  usage.requests = std::min(requests_max, usage.requests + requests_max * minutes);
  usage.tokens = std::min(tokens_max, usage.tokens + tokens_max * minutes);
  if (key.concurrency > 0 && usage.num_running >= key.concurrency)
    return too_many(fmt::format("{} requests at once", key.concurrency), 1);
  if (key.requests_per_minute > 0 && usage.requests < 1)
    return too_many(fmt::format("{} requests per minute", key.requests_per_minute),
                    (1 - usage.requests) / requests_max * 60);
  if (key.tokens_per_minute > 0 && usage.tokens <= 0)
    return too_many(fmt::format("{} tokens per minute", key.tokens_per_minute), -usage.tokens / tokens_max * 60);
  usage.requests -= 1;
  ++usage.num_running;
  return {};
}

void KeyGate::leave(const ApiKey& key, int64_t num_tokens) {
  const std::lock_guard lock(mutex_);
  Usage& usage = usages_[key.name];
  usage.tokens -= static_cast<double>(num_tokens);
  --usage.num_running;
}

}  // namespace deepinfer
