// SPDX-License-Identifier: MIT
// A device's kernels under test, and operands for them. The operands are the same on every device
// and representable in float32, so results differ only by rounding. For 16-bit kernels, and for the
// oracle of these, they are rounded to that type.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

// Holds a tensor and its memory.
struct Operand {
  Buffer memory;
  Tensor tensor;
  Ops* ops = nullptr;
  // Returns the first `rows` rows, or all elements, as double.
  std::vector<double> values() const;
  std::vector<double> values(std::size_t rows) const;
};

// Holds values for kernels that are not tensors: sums, moments, places, a workspace.
template <class T>
struct Numbers {
  Buffer memory;
  Ops* ops = nullptr;
  T* data() const { return reinterpret_cast<T*>(memory.data()); }
  std::vector<T> values() const {
    std::vector<T> read(memory.bytes() / sizeof(T));
    ops->read(memory.data(), read.data(), read.size() * sizeof(T));
    return read;
  }
};

class Machine {
 public:
  Machine(Device& device, DType dtype, OpsOptions options = {})
      : device_(&device), dtype_(dtype), options_(options), ops_(device.ops(dtype, options)) {}
  Ops& ops() { return *ops_; }
  // Reduces operands that kernels may still be writing, and waits for completion.
  void reduce(const ReduceArguments& arguments) {
    ops_->reduce_behind_kernels();
    ops_->reduce(arguments);
    ops_->record_event(0);
    ops_->wait_for_event(0);
  }
  Device& device() { return *device_; }
  bool on_gpu() const { return device_->id().kind == "cuda"; }
  DType dtype() const { return dtype_; }
  Kernels kernels() const { return options_.kernels; }
  std::string name() const;
  // Returns the largest error relative to the size of a result. It covers at most two roundings, of
  // the result and of float32 sums: 2^-9 for bfloat16, 2^-11 for float16.
  // `product`: the device's library computes the result, of a dense layer or a convolution.
  double tolerance(bool product = false) const {
    const int roundings = product ? roundings_ : 1;
    if (dtype_ == DType::kFloat64) return 1e-12;
    if (dtype_ == DType::kBFloat16) return roundings * 4e-3;
    if (dtype_ == DType::kFloat16) return roundings * 1e-3;
    return options_.kernels == Kernels::kDirect ? 2e-5 : 1e-4;
  }

  // Sets how often the device's libraries round a 16-bit product (once by default).
  void set_roundings(int roundings) { roundings_ = roundings; }
  int roundings() const { return roundings_; }
  // Rounds subsequent operands to this 16-bit type.
  void round_to(DType narrow) { held_in_ = narrow; }
  // Returns the element that an operand stores for `value`.
  double held(double value) const;

  Operand operand(const Shape& shape, const std::vector<double>& values);
  Operand operand(const Shape& shape, const std::vector<double>& values, DType dtype);
  // Returns an operand filled with a number that must be overwritten or ignored.
  Operand empty(const Shape& shape);
  Operand empty(const Shape& shape, DType dtype);

  template <class T>
  Numbers<T> numbers(const std::vector<T>& values) {
    Numbers<T> made{ops_->allocate(values.size() * sizeof(T), "numbers"), ops_.get()};
    ops_->write(values.data(), made.memory.data(), values.size() * sizeof(T));
    return made;
  }
  // Returns the state to pass to kernels, including the ids. Valid until the next call.
  const StepState* publish(const StepState& state);

 private:
  Device* device_;
  DType dtype_;
  OpsOptions options_;
  std::unique_ptr<Ops> ops_;
  DType held_in_ = dtype_;
  int roundings_ = 1;
  StepState state_;
  Buffer ids_;
};

// Returns numbers in (-1, 1) as a function of the seed. Rows from `used` on are NaN: nothing may
// read them.
std::vector<double> random_numbers(std::size_t count, std::uint64_t seed);
std::vector<double> random_batch(std::size_t rows, std::size_t used, std::size_t columns,
                                 std::uint64_t seed);

// Returns every device with every element type that it supports. The processor also appears with
// direct kernels only, with Winograd's kernels wherever possible, and with several threads.
std::vector<Machine> all_machines(const std::vector<std::unique_ptr<Device>>& devices);

// The results of a case; each is compared with the oracle's, within the tolerance.
using Results = std::vector<std::vector<double>>;
// Expects results within the tolerance of the oracle's. `by_pairs`: all but the first may have the
// error of products of rounded factors. `product`: see Machine::tolerance.
void expect_close(const Machine& machine, const Results& results, const Results& oracle,
                  bool by_pairs = false, bool product = false);

}  // namespace lockstep::engine
