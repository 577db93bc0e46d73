// SPDX-License-Identifier: MIT
// A device's kernels under test, and operands for them: the same numbers on every device, all of
// them representable in float32, so that results may differ by rounding alone. For kernels of
// 16 bits they are rounded to that, and for an oracle to compare them with too.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

// A tensor and its memory.
struct Operand {
  Buffer memory;
  Tensor tensor;
  Ops* ops = nullptr;
  // The first `rows` rows, or all elements, as double.
  std::vector<double> values() const;
  std::vector<double> values(std::size_t rows) const;
};

// Numbers that kernels read or write and that are no tensor: sums, moments, places, a workspace.
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
  // Of operands that kernels may still be writing; until it is done.
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
  // How far a result may be from the oracle's, relative to the size of such results. For bfloat16
  // two roundings of 2^-9 at most: that of the result, and what is allowed for sums of float32; for
  // float16 of 2^-11.
  // `product`: the result is of a dense layer or a convolution, which the device's library makes.
  double tolerance(bool product = false) const {
    const int roundings = product ? roundings_ : 1;
    if (dtype_ == DType::kFloat64) return 1e-12;
    if (dtype_ == DType::kBFloat16) return roundings * 4e-3;
    if (dtype_ == DType::kFloat16) return roundings * 1e-3;
    return options_.kernels == Kernels::kDirect ? 2e-5 : 1e-4;
  }

  // Sets how often the device's libraries round a product of 16 bits (once by default).
  void set_roundings(int roundings) { roundings_ = roundings; }
  int roundings() const { return roundings_; }
  // From now on operands hold numbers that this type of 16 bits has.
  void round_to(DType narrow) { held_in_ = narrow; }
  // What an operand holds where it is given `value`.
  double held(double value) const;

  Operand operand(const Shape& shape, const std::vector<double>& values);
  Operand operand(const Shape& shape, const std::vector<double>& values, DType dtype);
  // Filled with a number that must be overwritten or must not matter.
  Operand empty(const Shape& shape);
  Operand empty(const Shape& shape, DType dtype);

  template <class T>
  Numbers<T> numbers(const std::vector<T>& values) {
    Numbers<T> made{ops_->allocate(values.size() * sizeof(T), "numbers"), ops_.get()};
    ops_->write(values.data(), made.memory.data(), values.size() * sizeof(T));
    return made;
  }
  // What kernels are given of this step, ids too. Until the next call.
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

// Numbers in (-1, 1), a function of the seed. From row `used` on, of `rows`, they are NaN: nobody
// may read them.
std::vector<double> random_numbers(std::size_t count, std::uint64_t seed);
std::vector<double> random_batch(std::size_t rows, std::size_t used, std::size_t columns,
                                 std::uint64_t seed);

// Every device with every element type that it supports; the processor also with direct kernels
// alone, and with Winograd's wherever they can be used, and with several threads, of both types.
std::vector<Machine> all_machines(const std::vector<std::unique_ptr<Device>>& devices);

// The results of a case, each compared with the oracle's by the tolerance.
using Results = std::vector<std::vector<double>>;
// `by_pairs`: all but the first may be as far as products of rounded factors leave them. `product`:
// see Machine::tolerance.
void expect_close(const Machine& machine, const Results& results, const Results& oracle,
                  bool by_pairs = false, bool product = false);

}  // namespace lockstep::engine
