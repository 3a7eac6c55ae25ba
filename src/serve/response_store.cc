// SPDX-License-Identifier: MIT
#include "serve/response_store.h"

#include <utility>

namespace deepinfer {
namespace {

size_t size_of(const Message& message) {
  size_t size = sizeof(Message) + message.content.text.size() + (message.reasoning ? message.reasoning->size() : 0);
  for (const ImageSource& image : message.content.images) size += sizeof image + image.value.size();
  if (message.tool_calls)
    for (const ToolCall& call : *message.tool_calls)
      size += sizeof call + call.id.size() + call.name.size() + call.arguments.size();
  if (message.tools)
    for (const ToolDefinition& tool : *message.tools) size += sizeof tool + to_json(tool.parameters).size();
  return size;
}

size_t size_of(const StoredResponse& response) {
  size_t size = sizeof response + response.id.size() + response.owner.size() + response.body.size();
  for (const Message& message : response.messages) size += size_of(message);
  return size;
}

}  // namespace

void ResponseStore::put(StoredResponse response, int64_t now_ns) {
  const size_t size = size_of(response);
  const std::lock_guard lock(mutex_);
  while (!entries_.empty() && (entries_.front().expires_ns <= now_ns || num_bytes_ + size > bytes_max_))
    drop(entries_.begin());
  if (size > bytes_max_ || by_id_.contains(response.id)) return;
  entries_.push_back({std::move(response), size, now_ns + ttl_ns_});
  by_id_.emplace(entries_.back().response.id, std::prev(entries_.end()));
  num_bytes_ += size;
}

const ResponseStore::Entry* ResponseStore::find(const std::string& id, const std::string& owner, int64_t now_ns) {
  const auto at = by_id_.find(id);
  if (at == by_id_.end()) return nullptr;
  if (at->second->expires_ns <= now_ns) {
    drop(at->second);
    return nullptr;
  }
  return at->second->response.owner == owner ? &*at->second : nullptr;
}

void ResponseStore::drop(Entries::iterator entry) {
  num_bytes_ -= entry->num_bytes;
  by_id_.erase(entry->response.id);
  entries_.erase(entry);
}

std::optional<std::string> ResponseStore::body(const std::string& id, const std::string& owner, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(id, owner, now_ns);
  return entry ? std::optional(entry->response.body) : std::nullopt;
}

std::optional<std::vector<Message>> ResponseStore::messages(const std::string& id, const std::string& owner,
                                                            int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  const Entry* entry = find(id, owner, now_ns);
  return entry ? std::optional(entry->response.messages) : std::nullopt;
}

bool ResponseStore::erase(const std::string& id, const std::string& owner, int64_t now_ns) {
  const std::lock_guard lock(mutex_);
  if (find(id, owner, now_ns) == nullptr) return false;
  drop(by_id_.at(id));
  return true;
}

size_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

}  // namespace deepinfer
