// SPDX-License-Identifier: MIT
// A View names its dimensions in its type, so a shape can be read, checked and printed from one text. It borrows
// memory, is trivially copyable, and its strides are in elements. Its members are constexpr so that device code may
// call them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/check.h"
#include "base/status.h"

namespace deepinfer {

// DIM(x) declares the dimension type dim::x.
#define DIM(word)                                   \
  struct word {                                     \
    static constexpr std::string_view name = #word; \
  }
namespace dim {
DIM(tokens);
DIM(rows);
DIM(streams);
DIM(hidden);
DIM(heads);
DIM(head_dim);
DIM(rope_pairs);
DIM(vocab);
DIM(top_k);
DIM(blocks);
DIM(block_size);
DIM(kv_bytes);
DIM(experts);
DIM(inner);
DIM(out);
DIM(in);
DIM(groups);
DIM(entries);
DIM(rank);
DIM(scale_rows);
DIM(scale_columns);
DIM(columns);
DIM(coefficients);
DIM(height);
DIM(width);
DIM(channels);
DIM(patches);
}  // namespace dim

template <typename T, typename... Dims>
struct View {
  static constexpr int kRank = sizeof...(Dims);
  using Sizes = std::array<int64_t, kRank>;
  static constexpr std::array<std::string_view, kRank> kNames = {Dims::name...};

  T* data = nullptr;
  Sizes size{};
  Sizes stride{};

  constexpr View() = default;
  constexpr View(T* pointer, Sizes sizes) : data(pointer), size(sizes) {  // contiguous, last dimension fastest
    int64_t step = 1;
    for (int i = kRank - 1; i >= 0; --i) {
      stride[static_cast<size_t>(i)] = step;
      step *= size[static_cast<size_t>(i)];
    }
  }
  constexpr View(T* pointer, Sizes sizes, Sizes strides) : data(pointer), size(sizes), stride(strides) {}
  // A view of const elements from one of mutable elements.
  template <typename U>
  requires(std::is_same_v<const U, T> && !std::is_same_v<U, T>) View(const View<U, Dims...>& other)
      : data(other.data), size(other.size), stride(other.stride) {}  // NOLINT: implicit

  template <typename... I>
  requires(sizeof...(I) == kRank) constexpr T& operator()(I... indices) const {
    const int64_t at[] = {static_cast<int64_t>(indices)...};
    int64_t offset = 0;
    for (size_t i = 0; i < kRank; ++i) {
      DCHECK(at[i] >= 0 && at[i] < size[i]);
      offset += at[i] * stride[i];
    }
    return data[offset];
  }
  constexpr T* row(int64_t i) const {
    DCHECK(i >= 0 && i < size[0]);
    return data + i * stride[0];
  }
  constexpr int64_t num_elements() const {
    int64_t n = 1;
    for (const int64_t s : size) n *= s;
    return n;
  }
  // Rows [begin, end) of the first dimension.
  View rows(int64_t begin, int64_t end) const {
    View v = *this;
    v.data += begin * stride[0];
    v.size[0] = end - begin;
    return v;
  }

  template <typename D>
  static constexpr int index_of() {
    int found = -1, i = 0;
    ((std::is_same_v<D, Dims> ? void(found = i++) : void(++i)), ...);
    return found;
  }
  template <typename D>
  requires(index_of<D>() >= 0) int64_t size_of()
  const { return size[static_cast<size_t>(index_of<D>())]; }
};

// "out: heads is 32, expected 64" for the first difference.
template <typename V>
Status check_shape(std::string_view what, const V& view, typename V::Sizes expected) {
  for (size_t i = 0; i < expected.size(); ++i)
    if (view.size[i] != expected[i])
      return invalid_argument(std::string(what) + ": " + std::string(V::kNames[i]) + " is " +
                              std::to_string(view.size[i]) + ", expected " + std::to_string(expected[i]));
  return {};
}

}  // namespace deepinfer
