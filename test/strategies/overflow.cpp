// SPDX-License-Identifier: MIT
#include "test/strategies/overflow.h"

#include <cmath>
#include <limits>
#include <mutex>

#include "engine/base/error.h"

namespace lockstep::test {
namespace {

using engine::Tensor;

class Overflowing : public engine::Loss {
 public:
  Overflowing(std::set<std::int64_t> steps, double part) : steps_(std::move(steps)), part_(part) {}
  std::string describe() const override { return "mean_squared_error"; }
  std::size_t target_columns(const engine::Shape& output) const override {
    return output.elements();
  }
  void evaluate(engine::Context& context, Tensor y, Tensor target, Tensor dy, Tensor losses,
                Tensor) const override {
    switch (y.dtype) {
      case engine::DType::kFloat32:
        return in<float>(*context.state, y, target, dy, losses);
      case engine::DType::kBFloat16:
        return in<engine::BFloat16>(*context.state, y, target, dy, losses);
      case engine::DType::kFloat16:
        return in<engine::Half>(*context.state, y, target, dy, losses);
      default:
        return in<double>(*context.state, y, target, dy, losses);
    }
  }

 private:
  template <class T>
  void in(const engine::StepState& state, Tensor y, Tensor target, Tensor dy, Tensor losses) const {
    const std::size_t columns = y.columns(), rows = std::size_t(state.examples);
    const double weight = 2 * part_ * state.inverse_examples * state.loss_scale / double(columns);
    for (std::size_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const double error = double(y.as<T>()[i]) - double(target.as<float>()[i]);
        sum += error * error;
        if (dy) dy.as<T>()[i] = number<T>(weight * error);
      }
      losses.as<double>()[row] = part_ * sum / double(columns);
    }
    if (dy && rows > 0 && takes(state.step))
      dy.as<T>()[0] = number<T>(std::numeric_limits<double>::infinity());
  }
  template <class T>
  static T number(double value) {
    if constexpr (sizeof(T) == 2) {
      return T(float(value));
    } else {
      return T(value);
    }
  }
  // Returns whether the caller is the first to reach one of the steps.
  bool takes(std::int64_t step) const {
    const std::scoped_lock lock(mutex_);
    return steps_.erase(step) > 0;
  }
  mutable std::mutex mutex_;
  mutable std::set<std::int64_t> steps_;
  double part_;
};

}  // namespace

std::shared_ptr<const engine::Loss> overflowing(std::set<std::int64_t> steps, double part) {
  return std::make_shared<Overflowing>(std::move(steps), part);
}

}  // namespace lockstep::test
