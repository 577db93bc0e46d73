// SPDX-License-Identifier: MIT
#include "tools/bench/ceilings.h"

#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/random.h"

namespace lockstep::tools::bench {
namespace {

constexpr std::size_t kPiece = std::size_t(1) << 20;  // elements per write

// Fills the tensor with random numbers that repeat after a million. This is random enough for
// timing.
void fill(engine::Ops& ops, engine::Tensor tensor) {
  const std::size_t elements = tensor.elements();
  std::vector<float> numbers(std::min(elements, kPiece));
  engine::Random random(engine::stream_key(1, "numbers of a benchmark"), elements);
  for (float& number : numbers) number = float(random.uniform(-0.1, 0.1));
  for (std::size_t at = 0; at < elements; at += kPiece) {
    const std::size_t count = std::min(kPiece, elements - at);
    ops.load(numbers.data(), {tensor.data + at * size_of(tensor.dtype), {count, 1}, tensor.dtype});
  }
  ops.synchronize();
}

}  // namespace

CopyCeiling::CopyCeiling(engine::Ops& ops, std::size_t bytes)
    : ops_(ops),
      bytes_(bytes),
      from_(ops.allocate(bytes, "what is copied")),
      to_(ops.allocate(bytes, "what is copied")) {
  const std::size_t width = size_of(ops.dtype());
  fill(ops, {from_.data(), {bytes / width, 1}, ops.dtype()});
}

double CopyCeiling::seconds(int calls) {
  bool there = false;
  const double seconds = seconds_of_each(ops_, calls, [&] {
    ops_.copy_bytes((there ? to_ : from_).data(), (there ? from_ : to_).data(), bytes_);
    there = !there;
  });
  return seconds;
}

bool CopyCeiling::holds() const {
  return ops_.checksum(from_.data(), bytes_, 0) == ops_.checksum(to_.data(), bytes_, 0) &&
         ops_.checksum(from_.data(), bytes_, 0) != 0;
}

ProductCeiling::ProductCeiling(engine::Ops& ops, std::size_t extent) : ops_(ops), extent_(extent) {
  const std::size_t bytes = extent * extent * size_of(ops.dtype());
  for (engine::Buffer* matrix : {&x_, &w_, &y_})
    *matrix = ops.allocate(bytes, "a matrix of a product");
  for (const engine::Buffer* matrix : {&x_, &w_})
    fill(ops, {matrix->data(), {extent, extent}, ops.dtype()});
  state_.examples = std::int64_t(extent);
  state_.inverse_examples = 1;
}

double ProductCeiling::seconds(int calls) {
  const engine::DenseSpec spec{.inputs = extent_, .outputs = extent_, .bias = false};
  const auto square = [&](const engine::Buffer& matrix) {
    return engine::Tensor{matrix.data(), {extent_, extent_}, ops_.dtype()};
  };
  const engine::StepState* const state = ops_.publish(state_);
  return seconds_of_each(ops_, calls, [&] {
    ops_.dense_forward(state, spec, square(x_), square(w_), {}, square(y_));
  });
}

bool ProductCeiling::finite() const {
  const std::size_t width = size_of(ops_.dtype()), all = extent_ * extent_;
  double sum = 0;
  std::vector<std::byte> numbers(width);
  for (const std::size_t at : {std::size_t(0), extent_ - 1, all - extent_, all - 1}) {
    ops_.read(y_.data() + at * width, numbers.data(), width);
    sum += std::abs(engine::number_at(numbers.data(), ops_.dtype(), 0));
  }
  return std::isfinite(sum) && sum > 0;
}

}  // namespace lockstep::tools::bench
