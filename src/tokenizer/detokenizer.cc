// SPDX-License-Identifier: MIT
#include "tokenizer/detokenizer.h"

#include <cstring>

#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Detokenizer::push(TokenId id) {
  std::string out;
  push(id, out);
  return out;
}

void Detokenizer::push(TokenId id, std::string& out) { push_bytes(tokenizer_->token_bytes(id), out); }

std::string Detokenizer::finish() {
  std::string out;
  finish(out);
  return out;
}

void Detokenizer::finish(std::string& out) {
  // What is held back is always one so far valid prefix, hence one ill-formed subpart.
  if (num_pending_ > 0) out += kReplacement;
  num_pending_ = 0;
}

TextDelta Detokenizer::push_delta(TokenId id) {
  TextDelta delta;
  delta.num_tokens = 1;
  if (tokenizer_->is_control(id)) {
    finish(delta.text);
    delta.control_id = id;
  } else {
    push(id, delta.text);
  }
  return delta;
}

void Detokenizer::push_bytes(std::string_view bytes, std::string& out) {
  // First complete, or condemn, what is held back; it grows by one byte at a time and never exceeds four.
  while (num_pending_ > 0 && !bytes.empty()) {
    pending_[num_pending_] = bytes.front();
    const std::string_view grown(pending_, num_pending_ + 1);
    if (decode_utf8(grown).num_bytes > 0) {
      out += grown;
      num_pending_ = 0;
    } else if (is_incomplete_utf8(grown)) {
      ++num_pending_;
    } else {
      out += kReplacement;  // the new byte does not continue it and is looked at again below
      num_pending_ = 0;
      break;
    }
    bytes.remove_prefix(1);
  }
  size_t at = 0, begin = 0;
  while (at < bytes.size()) {
    if (static_cast<uint8_t>(bytes[at]) < 0x80) {
      ++at;
      continue;
    }
    const std::string_view rest = bytes.substr(at);
    if (const CodePoint point = decode_utf8(rest); point.num_bytes > 0) {
      at += point.num_bytes;
      continue;
    }
    out.append(bytes, begin, at - begin);
    if (is_incomplete_utf8(rest)) {
      num_pending_ = rest.size();
      std::memcpy(pending_, rest.data(), rest.size());
      return;
    }
    out += kReplacement;
    at += ill_formed_prefix(rest);
    begin = at;
  }
  out.append(bytes, begin, at - begin);
}

}  // namespace deepinfer
