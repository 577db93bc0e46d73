// SPDX-License-Identifier: MIT
// Plain views of device memory: element type, extents, ranges of an arena. They own nothing, are
// trivially copyable, and cost what their few words cost. The owner is a `Buffer` elsewhere.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace lockstep::engine {

enum class DType : std::uint8_t { kFloat32, kFloat64, kInt32, kInt64 };
std::size_t size_of(DType type);        // bytes of one element
std::string_view name(DType type);      // "float32"
DType dtype_of(std::string_view name);  // throws Error(kInvalid) for an unknown name

// Extents, slowest first; up to four. Layers speak of shapes without the batch; a Tensor of a batch
// has its rows in front: [rows, height, width, channels].
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

// Elements [begin, end) of an arena, of a data set, of a batch.
struct Range {
  std::size_t begin = 0, end = 0;
  std::size_t size() const { return end - begin; }
  bool empty() const { return begin == end; }
  bool meets(Range o) const { return begin < o.end && o.begin < end; }
  bool holds(Range o) const { return begin <= o.begin && o.end <= end; }
  bool operator==(const Range&) const = default;
};

// A row-major view. data == nullptr: "not wanted" (a gradient nobody reads, an absent bias).
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

// Rows [first, first + count) of a batch; of nothing, nothing.
Tensor rows_of(Tensor batch, std::size_t first, std::size_t count);

}  // namespace lockstep::engine
