// SPDX-License-Identifier: MIT
// Little-endian fields in sequence: how every record of the store and every frame of its protocol is laid out. A reader
// never passes the end: it remembers that it was asked to, and gives zeros from then on. Thread: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/check.h"

namespace deepinfer {

// Writes into bytes that the caller owns and has sized.
class FieldWriter {
 public:
  explicit FieldWriter(std::span<uint8_t> bytes) : bytes_(bytes) {}
  template <typename T>
  void put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    put_bytes({reinterpret_cast<const uint8_t*>(&value), sizeof value});
  }
  void put_bytes(std::span<const uint8_t> bytes) {
    CHECK(position_ + bytes.size() <= bytes_.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + position_, bytes.data(), bytes.size());
    position_ += bytes.size();
  }
  template <size_t N>
  void put(const std::array<uint8_t, N>& bytes) {
    put_bytes(bytes);
  }
  // What std::tie made of a struct's fields: one list says the layout for both directions.
  template <typename... Ts>
  void put_all(const std::tuple<Ts...>& fields) {
    std::apply([this](const auto&... field) { (this->put(field), ...); }, fields);
  }
  size_t position() const { return position_; }

 private:
  std::span<uint8_t> bytes_;
  size_t position_ = 0;
};

class FieldReader {
 public:
  explicit FieldReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename T>
  T get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    T value{};
    get_bytes({reinterpret_cast<uint8_t*>(&value), sizeof value});
    return value;
  }
  void get_bytes(std::span<uint8_t> into) {
    if (!ok_ || into.size() > bytes_.size() - position_) {
      ok_ = false;
      if (!into.empty()) std::memset(into.data(), 0, into.size());
      return;
    }
    if (!into.empty()) std::memcpy(into.data(), bytes_.data() + position_, into.size());
    position_ += into.size();
  }
  template <typename T>
  void get_into(T& value) {
    value = get<T>();
  }
  template <size_t N>
  void get_into(std::array<uint8_t, N>& bytes) {
    get_bytes(bytes);
  }
  template <typename... Ts>
  void get_all(std::tuple<Ts&...> fields) {
    std::apply([this](auto&... field) { (this->get_into(field), ...); }, fields);
  }
  std::span<const uint8_t> rest() const { return bytes_.subspan(position_); }
  bool ok() const { return ok_; }  // nothing was read past the end
  size_t position() const { return position_; }

 private:
  std::span<const uint8_t> bytes_;
  size_t position_ = 0;
  bool ok_ = true;
};

inline std::span<const uint8_t> bytes_of(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace deepinfer
