// SPDX-License-Identifier: MIT
#include "test/engine/ops/machine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/ops/host_view.h"

namespace lockstep::engine {

std::vector<double> Operand::values() const {
  const HostView view(*ops, tensor);
  std::vector<double> numbers(tensor.elements());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = number_at(view.tensor().data, tensor.dtype, i);
  return numbers;
}

std::vector<double> Operand::values(std::size_t rows) const {
  std::vector<double> numbers = values();
  numbers.resize(rows * tensor.columns());
  return numbers;
}

std::string Machine::name() const {
  return fmt::format("{} {}, {} kernels, {} threads", to_string(device_->id()),
                     engine::name(dtype_), engine::name(options_.kernels), options_.threads);
}

Operand Machine::operand(const Shape& shape, const std::vector<double>& values) {
  return operand(shape, values, dtype_);
}

Operand Machine::operand(const Shape& shape, const std::vector<double>& values, DType dtype) {
  invariant(values.size() == shape.elements(), "an operand of another size than its values");
  std::vector<std::byte> numbers(values.size() * size_of(dtype));
  const Tensor host{numbers.data(), shape, dtype};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = dtype == dtype_ ? held(values[i]) : values[i];
    if (dtype == DType::kFloat32) {
      host.as<float>()[i] = float(value);
    } else if (dtype == DType::kBFloat16) {
      host.as<BFloat16>()[i] = BFloat16(float(value));
    } else if (dtype == DType::kFloat16) {
      host.as<Half>()[i] = Half(float(value));
    } else {
      host.as<double>()[i] = value;
    }
  }
  Operand made;
  made.ops = ops_.get();
  made.memory = ops_->allocate(numbers.size(), "an operand");
  made.tensor = {made.memory.data(), shape, dtype};
  ops_->write(numbers.data(), made.memory.data(), numbers.size());
  return made;
}

double Machine::held(double value) const {
  if (held_in_ == DType::kBFloat16) return double(BFloat16(float(value)));
  return held_in_ == DType::kFloat16 ? double(float(Half(float(value)))) : value;
}

const StepState* Machine::publish(const StepState& state) {
  state_ = state;
  if (state.ids != nullptr && !ops_->in_host_memory()) {
    const std::size_t bytes = std::size_t(state.examples) * sizeof(std::int64_t);
    ids_ = ops_->allocate(bytes, "ids");
    ops_->write(state.ids, ids_.data(), bytes);
    state_.ids = reinterpret_cast<const std::int64_t*>(ids_.data());
  }
  return ops_->publish(state_);
}

Operand Machine::empty(const Shape& shape) {
  return empty(shape, dtype_);
}

Operand Machine::empty(const Shape& shape, DType dtype) {
  return operand(shape, std::vector<double>(shape.elements(), 1234.5), dtype);
}

std::vector<double> random_numbers(std::size_t count, std::uint64_t seed) {
  Random random(stream_key(seed, "test"));
  std::vector<double> numbers(count);
  for (double& number : numbers) number = double(float(random.uniform(-1, 1)));
  return numbers;
}

std::vector<double> random_batch(std::size_t rows, std::size_t used, std::size_t columns,
                                 std::uint64_t seed) {
  std::vector<double> numbers = random_numbers(rows * columns, seed);
  for (std::size_t i = used * columns; i < numbers.size(); ++i) {
    numbers[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return numbers;
}

std::vector<Machine> all_machines(const std::vector<std::unique_ptr<Device>>& devices) {
  std::vector<Machine> machines;
  for (const std::unique_ptr<Device>& device : devices) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16, DType::kFloat16}) {
      if (device->supports(dtype)) machines.emplace_back(*device, dtype);
    }
    if (device->id().kind != "cpu") continue;
    machines.emplace_back(*device, DType::kFloat32, OpsOptions{.kernels = Kernels::kDirect});
    machines.emplace_back(*device, DType::kFloat32, OpsOptions{.threads = 3});
    machines.emplace_back(*device, DType::kFloat32,
                          OpsOptions{.threads = 2, .kernels = Kernels::kWinograd});
    machines.emplace_back(*device, DType::kBFloat16,
                          OpsOptions{.threads = 2, .kernels = Kernels::kDirect});
    machines.emplace_back(*device, DType::kBFloat16,
                          OpsOptions{.threads = 3, .kernels = Kernels::kWinograd});
  }
  return machines;
}

// Measures an element's error relative to the root mean square of its result, at least 1e-3. A
// 16-bit element counts relative to itself if it is larger. Winograd's method with factors of 8
// significant bits leaves an error of 2.5e-2 of the root mean square in images of many tiles. In
// images of few tiles, the error is up to twice that. Single elements have
// larger errors.
void expect_close(const Machine& machine, const Results& results, const Results& oracle,
                  bool by_pairs, bool product) {
  ASSERT_EQ(results.size(), oracle.size());
  for (std::size_t k = 0; k < oracle.size(); ++k) {
    ASSERT_EQ(results[k].size(), oracle[k].size()) << "result " << k;
    const double tolerance = by_pairs && k > 0 ? 1 : machine.tolerance(product);
    double squares = 0, errors = 0;
    for (double value : oracle[k]) squares += value * value;
    const double size = std::max(1e-3, std::sqrt(squares / double(oracle[k].size())));
    for (std::size_t i = 0; i < oracle[k].size(); ++i) {
      const double itself = size_of(machine.dtype()) == 2 ? std::abs(oracle[k][i]) : 0;
      const double error = std::abs(results[k][i] - oracle[k][i]) / std::max(size, itself);
      errors += error * error;
      ASSERT_LE(error, tolerance) << machine.name() << ", result " << k << ", element " << i << ": "
                                  << results[k][i] << " for " << oracle[k][i];
    }
    if (oracle[k].empty()) continue;
    ASSERT_LE(std::sqrt(errors / double(oracle[k].size())), by_pairs && k > 0 ? 6e-2 : tolerance)
        << machine.name() << ", result " << k;
  }
}

}  // namespace lockstep::engine
