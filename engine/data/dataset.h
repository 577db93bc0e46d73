// SPDX-License-Identifier: MIT
// Examples that are read by index. Derive from Dataset for your own data. Several prefetching
// threads call `read` concurrently, and it must be pure: the same index gives the same numbers.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "engine/tensor/tensor.h"

namespace lockstep::engine {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::uint64_t size() const = 0;            // examples
  virtual Shape input_shape() const = 0;             // one example, NHWC without the N
  virtual std::size_t target_columns() const = 0;    // 1: a class, as a number
  virtual std::size_t classes() const { return 0; }  // 0: not a classification
  // Writes one example: input_shape().elements() and target_columns() numbers. An exception ends
  // the training of all ranks with an Error that names the example.
  virtual void read(std::uint64_t index, std::span<float> input, std::span<float> target) const = 0;
  // Does the same for training in an epoch, from 0 on. Override it for data that differ between
  // epochs, as augmented data do; it must be pure in (epoch, index). Evaluations call `read`.
  virtual void read_in(std::int64_t epoch, std::uint64_t index, std::span<float> input,
                       std::span<float> target) const {
    static_cast<void>(epoch);
    read(index, input, target);
  }
  virtual std::string describe() const = 0;  // "idx digits/train: 8000 of 28x28x1, 10 classes"
  // Returns equal values for equal data; kept in checkpoints. May be cheap: sizes and a few
  // examples.
  virtual std::uint64_t fingerprint() const = 0;
};

}  // namespace lockstep::engine
