// SPDX-License-Identifier: MIT
// A dataset for tests: example i is {i, -i} with target i + 0.5. The reading thread calls `reading`
// before each example; it may count, block, or throw.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "engine/data/dataset.h"

namespace lockstep::engine {

class Numbers : public Dataset {
 public:
  explicit Numbers(std::uint64_t size, std::function<void(std::uint64_t)> reading = {})
      : size_(size), reading_(std::move(reading)) {}
  std::uint64_t size() const override { return size_; }
  Shape input_shape() const override { return {2}; }
  std::size_t target_columns() const override { return 1; }
  void read(std::uint64_t index, std::span<float> input, std::span<float> target) const override {
    if (reading_) reading_(index);
    input[0] = float(index);
    input[1] = -float(index);
    target[0] = float(index) + 0.5f;
  }
  std::string describe() const override { return "numbers"; }
  std::uint64_t fingerprint() const override { return size_; }

 private:
  std::uint64_t size_;
  std::function<void(std::uint64_t)> reading_;
};

}  // namespace lockstep::engine
