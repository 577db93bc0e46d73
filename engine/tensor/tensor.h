// SPDX-License-Identifier: MIT
// Plain views of device memory: element type, extents, ranges of an arena. They own nothing, are
// trivially copyable and cost a few words. A `Buffer` elsewhere owns the memory.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "engine/base/bfloat16.h"
#include "engine/base/half.h"

namespace lockstep::engine {

// The 16-bit types are for storage, and collectives add them; arithmetic uses float32.
enum class DType : std::uint8_t { kFloat32, kFloat64, kInt32, kInt64, kFloat16, kBFloat16 };
inline constexpr std::array kDTypes{DType::kFloat32, DType::kFloat64, DType::kInt32,
                                    DType::kInt64,   DType::kFloat16, DType::kBFloat16};
std::size_t size_of(DType type);        // bytes of one element
std::string_view name(DType type);      // "float32"
DType dtype_of(std::string_view name);  // throws Error(kInvalid) for an unknown name
bool is_integer(DType type);
// Returns the type for sums and updates: float32 for the 16-bit types, else the type itself.
DType computed_in(DType type);
// Returns element i of an array of any `type`; a 64-bit integer as the nearest double.
double number_at(const std::byte* data, DType type, std::size_t i);

// Returns the DType of a C++ type: dtype_of<float>() is kFloat32.
template <class T>
constexpr DType dtype_of() = delete;
template <>
constexpr DType dtype_of<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kInt32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType dtype_of<Half>() {
  return DType::kFloat16;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::kBFloat16;
}

// Holds up to four extents, slowest first. Layers describe shapes without the batch; the Tensor of
// a batch has its rows in front: [rows, height, width, channels].
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;
  Shape() = default;
  Shape(std::initializer_list<std::size_t> extents);
  std::size_t rank() const { return rank_; }
  std::size_t operator[](std::size_t i) const { return extents_[i]; }
  std::size_t elements() const;             // product of the extents; 1 for rank 0
  Shape with_rows(std::size_t rows) const;  // [rows, ...this]
  void append(std::size_t extent);          // throws Error(kInvalid) beyond kMaxRank
  bool operator==(const Shape&) const = default;

 private:
  std::array<std::size_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};
std::string to_string(const Shape& shape);  // "28x28x1"; "scalar" for rank 0

// Covers elements [begin, end) of an arena, a data set or a batch.
struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool meets(Range o) const { return begin < o.end && o.begin < end; }
  bool holds(Range o) const { return begin <= o.begin && o.end <= end; }
  bool operator==(const Range&) const = default;
};

// Is a row-major view. data == nullptr means "not wanted" (an unread gradient, an absent bias).
struct Tensor {
  std::byte* data = nullptr;
  Shape shape;
  DType dtype = DType::kFloat32;
  explicit operator bool() const { return data != nullptr; }
  std::size_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return elements() * size_of(dtype); }
  std::size_t rows() const { return shape.rank() ? shape[0] : 0; }
  std::size_t columns() const { return rows() ? elements() / rows() : 0; }  // elements of a row
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// Returns rows [first, first + count) of a batch; an empty tensor stays empty.
Tensor rows_of(Tensor batch, std::size_t first, std::size_t count);

}  // namespace lockstep::engine
