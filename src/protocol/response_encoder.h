// SPDX-License-Identifier: MIT
// The answer side of a protocol: ChatEvents to the events of its stream and to the object of a reply that is not
// streamed. Knows JSON and the protocol's shapes, nothing of SSE framing: that is net's. Thread: one owner.
// Source of the shapes: chat.md 5.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/range.h"
#include "chat/chat_event.h"
#include "protocol/codec.h"
#include "protocol/request_error.h"

namespace deepinfer {

struct ResponseIdentity {
  std::string id;         // of the response, as the client sees it
  std::string model;      // the name the client used
  int64_t created_s = 0;  // Unix time
  std::string signature;  // Messages: closes a thinking block; empty = the id
  uint32_t num_choices = 1;
};

// Events of a stream, ready to be framed. The storage is kept between steps.
struct WireEvent {
  const char* name = nullptr;  // SSE event name; nullptr where the protocol has none
  Range data;                  // into WireEvents::bytes: one JSON object
};
struct WireEvents {
  std::vector<WireEvent> list;
  std::string bytes;

  void clear() {
    list.clear();
    bytes.clear();
  }
  std::string_view data_of(const WireEvent& event) const {
    return std::string_view(bytes).substr(static_cast<size_t>(event.data.begin),
                                          static_cast<size_t>(event.data.size()));
  }
  // Opens an event; its JSON is then appended to `bytes` until close().
  void open(const char* name) { list.push_back({name, {static_cast<int64_t>(bytes.size()), 0}}); }
  void close() { list.back().data.end = static_cast<int64_t>(bytes.size()); }
};

class ResponseEncoder {
 public:
  virtual ~ResponseEncoder() = default;

  // Appends the stream events of one step of one choice to `out`. Choices beyond the first exist in Chat only.
  virtual void encode(uint32_t choice_idx, const ChatEvents& events, WireEvents& out) = 0;
  // The answer failed after it began: appends the protocol's error event, after which nothing may follow.
  virtual void fail(const RequestError& error, WireEvents& out) = 0;
  // Appends the whole reply, the accumulation of all events so far.
  virtual void append_final(std::string& out) const = 0;
  // The data of the frame after the last event; empty where the protocol has none.
  virtual std::string_view terminator() const { return {}; }

  // When the answer was complete (Responses); set before the finish event is encoded. Default: the time of creation.
  void set_completed_s(int64_t completed_s) { completed_s_ = completed_s; }

 protected:
  int64_t completed_s_ = 0;
};

std::unique_ptr<ResponseEncoder> make_chat_completions_encoder(const ResponseContext& context,
                                                               const ResponseIdentity& identity);
std::unique_ptr<ResponseEncoder> make_responses_encoder(const ResponseContext& context,
                                                        const ResponseIdentity& identity);
std::unique_ptr<ResponseEncoder> make_messages_encoder(const ResponseContext& context,
                                                       const ResponseIdentity& identity);

}  // namespace deepinfer
