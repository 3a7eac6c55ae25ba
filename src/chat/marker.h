// SPDX-License-Identifier: MIT
// A delimiter the stream parser looks for, and the incremental search for it (Knuth, Morris, Pratt: linear, no byte is
// read twice). A marker's bytes are plain or special: special bytes are the spelling of a control token and are met
// only by that token's id, so text that merely spells the token is text. Output that arrives as text has no ids; its
// bytes meet both. Thread: its owner's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

// Bit masks: a byte of the stream meets a marker byte when the values are equal and the masks overlap.
enum class ByteOrigin : uint8_t { kPlainId = 1, kControlId = 2, kText = 3 };

class Marker {
 public:
  // kNewlinesBefore: the run of "\n" that touches the marker belongs to it.
  // kFirstByte: met only by the very first byte after the search began.
  enum class Kind { kAnywhere, kNewlinesBefore, kFirstByte };

  explicit Marker(Kind kind = Kind::kAnywhere) : kind_(kind) {}
  Marker& plain(std::string_view bytes) { return append(bytes, 1); }
  Marker& control(std::string_view spelling) { return append(spelling, 2); }
  void finish();  // call once after the last part

  Kind kind() const { return kind_; }
  size_t size() const { return bytes_.size(); }
  bool meets(size_t at, uint8_t byte, ByteOrigin origin) const {
    return static_cast<uint8_t>(bytes_[at]) == byte && (origins_[at] & static_cast<uint8_t>(origin)) != 0;
  }
  size_t fallback(size_t num_matched) const { return failure_[num_matched - 1]; }
  uint8_t first_byte() const { return static_cast<uint8_t>(bytes_[0]); }

 private:
  Marker& append(std::string_view bytes, uint8_t origin);

  Kind kind_;
  std::string bytes_;
  std::vector<uint8_t> origins_;   // mask of each byte
  std::vector<uint32_t> failure_;  // longest proper prefix that is also a suffix, by number of matched bytes
};

// Where one marker's search stands.
struct MarkerSearch {
  size_t num_matched = 0;
  size_t num_newlines = 0;  // of the run before the match (kNewlinesBefore)
  size_t num_open() const { return num_newlines + num_matched; }
};

// Reads one byte; true when the marker is now complete (then num_open() is the length of the match).
inline bool advance(const Marker& marker, MarkerSearch& search, uint8_t byte, ByteOrigin origin) {
  if (!marker.meets(search.num_matched, byte, origin)) {
    const bool owns_newlines = marker.kind() == Marker::Kind::kNewlinesBefore;
    if (search.num_matched == 0) {
      search.num_newlines = owns_newlines && byte == '\n' ? search.num_newlines + 1 : 0;
      return false;
    }
    search.num_newlines = 0;  // the run touched the match that just failed
    do {
      search.num_matched = marker.fallback(search.num_matched);
    } while (search.num_matched > 0 && !marker.meets(search.num_matched, byte, origin));
    if (search.num_matched == 0 && !marker.meets(0, byte, origin)) {
      if (owns_newlines && byte == '\n') search.num_newlines = 1;
      return false;
    }
  }
  return ++search.num_matched == marker.size();
}

}  // namespace deepinfer
