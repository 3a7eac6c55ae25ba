// SPDX-License-Identifier: MIT
// Finished Responses, kept for GET, DELETE and previous_response_id. Bounded in bytes and in time; the oldest go first.
// An entry is seen by its owner alone. Thread: any.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "chat/chat_request.h"

namespace deepinfer {

struct StoredResponse {
  std::string id;
  std::string owner;              // name of the key
  std::string body;               // the response object as JSON
  std::vector<Message> messages;  // the turns that led to it, instructions left out, and its own answer
};

class ResponseStore {
 public:
  ResponseStore(size_t bytes_max, int64_t ttl_ns) : bytes_max_(bytes_max), ttl_ns_(ttl_ns) {}

  void put(StoredResponse response, int64_t now_ns);
  std::optional<std::string> body(const std::string& id, const std::string& owner, int64_t now_ns);
  std::optional<std::vector<Message>> messages(const std::string& id, const std::string& owner, int64_t now_ns);
  bool erase(const std::string& id, const std::string& owner, int64_t now_ns);
  size_t num_bytes() const;

 private:
  struct Entry {
    StoredResponse response;
    size_t num_bytes = 0;
    int64_t expires_ns = 0;
  };
  using Entries = std::list<Entry>;  // oldest first

  const Entry* find(const std::string& id, const std::string& owner, int64_t now_ns);
  void drop(Entries::iterator entry);

  const size_t bytes_max_;
  const int64_t ttl_ns_;
  mutable std::mutex mutex_;  // guards what stands below
  Entries entries_;
  std::unordered_map<std::string, Entries::iterator> by_id_;
  size_t num_bytes_ = 0;
};

}  // namespace deepinfer
