// SPDX-License-Identifier: MIT
#include "engine/tensor/tensor.h"

#include "engine/base/error.h"

namespace lockstep::engine {

std::size_t size_of(DType type) {
  switch (type) {
    case DType::kFloat32:
      return 4;
    case DType::kFloat64:
      return 8;
    case DType::kInt32:
      return 4;
    case DType::kInt64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
  }
  broken("an element type without a size");
}

std::string_view name(DType type) {
  switch (type) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kFloat16:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
  }
  broken("an element type without a name");
}

DType dtype_of(std::string_view wanted) {
  for (DType type : kDTypes) {
    if (name(type) == wanted) return type;
  }
  fail(Code::kInvalid,
       "unknown element type '{}'; known: float32, float64, int32, int64, float16, bfloat16",
       wanted);
}

bool is_integer(DType type) {
  return type == DType::kInt32 || type == DType::kInt64;
}

DType computed_in(DType type) {
  return size_of(type) == 2 ? DType::kFloat32 : type;
}

double number_at(const std::byte* data, DType type, std::size_t i) {
  switch (type) {
    case DType::kFloat32:
      return double(reinterpret_cast<const float*>(data)[i]);
    case DType::kFloat64:
      return reinterpret_cast<const double*>(data)[i];
    case DType::kInt32:
      return double(reinterpret_cast<const std::int32_t*>(data)[i]);
    case DType::kInt64:
      return double(reinterpret_cast<const std::int64_t*>(data)[i]);
    case DType::kFloat16:
      return double(reinterpret_cast<const Half*>(data)[i]);
    case DType::kBFloat16:
      return double(reinterpret_cast<const BFloat16*>(data)[i]);
  }
  broken("an element of a type that does not exist");
}

Shape::Shape(std::initializer_list<std::size_t> extents) {
  for (std::size_t extent : extents) append(extent);
}

std::size_t Shape::elements() const {
  std::size_t product = 1;
  for (std::size_t i = 0; i < rank_; ++i) product *= extents_[i];
  return product;
}

Shape Shape::with_rows(std::size_t rows) const {
  Shape batch{rows};
  for (std::size_t i = 0; i < rank_; ++i) batch.append(extents_[i]);
  return batch;
}

void Shape::append(std::size_t extent) {
  require(rank_ < kMaxRank, "a shape has at most {} extents", kMaxRank);
  extents_[rank_++] = extent;
}

std::string to_string(const Shape& shape) {
  if (shape.rank() == 0) return "scalar";
  std::string text;
  for (std::size_t i = 0; i < shape.rank(); ++i) {
    text += (i ? "x" : "") + std::to_string(shape[i]);
  }
  return text;
}

Tensor rows_of(Tensor batch, std::size_t first, std::size_t count) {
  if (!batch) return batch;
  batch.data += first * batch.columns() * size_of(batch.dtype);
  Shape shape{count};
  for (std::size_t i = 1; i < batch.shape.rank(); ++i) shape.append(batch.shape[i]);
  batch.shape = shape;
  return batch;
}

}  // namespace lockstep::engine
