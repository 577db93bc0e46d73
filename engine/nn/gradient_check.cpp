// SPDX-License-Identifier: MIT
#include "engine/nn/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/nn/local_context.h"

namespace lockstep::engine {
namespace {

// Is an input whose gradient can be checked: a parameter of [rows, ...shape]. Rows beyond the count
// are passed on as NaN.
class Probe final : public Layer {
 public:
  Probe(std::size_t rows, Shape shape) : rows_(rows), shape_(shape) {}
  std::string describe() const override {
    return fmt::format("probe {} of {} rows", to_string(shape_), rows_);
  }
  Shape output_shape(std::span<const Shape>) const override { return shape_; }
  std::vector<ParameterSpec> parameters(std::span<const Shape>) const override {
    return {{"x", {rows_, shape_.elements()}, constant(0), Group::kWeight}};
  }
  void forward(Context& context, const ForwardArguments& a) const override {
    std::fill_n(a.y.as<double>(), a.y.elements(), std::numeric_limits<double>::quiet_NaN());
    std::copy_n(a.w[0].as<double>(), used(context), a.y.as<double>());
  }
  void backward(Context& context, const BackwardArguments& a) const override {
    double* gradient = a.dw[0].as<double>();
    if (!a.accumulate) std::fill_n(gradient, a.dw[0].elements(), 0.0);
    for (std::size_t i = 0; i < used(context); ++i) gradient[i] += a.dy.as<double>()[i];
  }

 private:
  std::size_t used(const Context& context) const {
    return std::size_t(context.state->examples) * shape_.elements();
  }
  std::size_t rows_;
  Shape shape_;
};

// The loss of an example is a weighted sum of its outputs, with random weights, so that every
// output has its own gradient.
class WeightedSum final : public Loss {
 public:
  explicit WeightedSum(std::uint64_t seed) : key_(stream_key(seed, "weights")) {}
  std::string describe() const override { return "weighted sum"; }
  std::size_t target_columns(const Shape&) const override { return 1; }
  void evaluate(Context& context, Tensor y, Tensor, Tensor dy, Tensor losses,
                Tensor) const override {
    const std::size_t columns = y.columns();
    if (dy) {
      std::fill_n(dy.as<double>(), dy.elements(), std::numeric_limits<double>::quiet_NaN());
    }
    for (std::size_t row = 0; row < std::size_t(context.state->examples); ++row) {
      Random random(key_, row);
      double sum = 0;
      for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
        const double weight = random.uniform(-1, 1);
        sum += weight * y.as<double>()[i];
        if (dy) dy.as<double>()[i] = weight * context.state->inverse_examples;
      }
      losses.as<double>()[row] = sum;
    }
  }

 private:
  std::uint64_t key_;
};

// Owns a graph with its arenas, and runs it.
class Checker {
 public:
  Checker(Ops& ops, const GraphSpec& spec, const GradientCheckOptions& options)
      : spec_(spec),
        options_(options),
        graph_(spec, ops, options.rows),
        context_(ops, graph_),
        weights_(graph_.parameters()),
        gradients_(graph_.trainable()) {
    graph_.bind(bytes(weights_), bytes(gradients_));
    graph_.initialise(options.seed, bytes(weights_));
    state_.step = 3;
    state_.examples = std::int64_t(options.examples);
    state_.inverse_examples = 1 / double(std::max<std::size_t>(options.examples, 1));
    state_.ids = graph_.ids();
    context_.state = &state_;
    context_.training = options.training;
    context_.seed = options.seed;
    fill_batch();
  }
  // Sets parameters to random values, because start values are often zero.
  void scatter() {
    for (const Parameter& parameter : graph_.layout()) {
      Random random(stream_key(options_.seed, parameter.name + " scattered"));
      const std::size_t count = parameter.range.size();
      // The points are distinct and not near zero, in random order.
      const std::vector<std::uint64_t> order =
          permutation(count, stream_key(options_.seed, parameter.name), 0);
      for (std::size_t i = 0; i < count; ++i) {
        const double place = (double(order[i]) + 0.5 + 0.2 * random.uniform()) / double(count);
        weights_[parameter.range.begin + i] = 2 * place - 1 + 0.3 / double(count);
      }
    }
  }
  GradientCheck run();

 private:
  static std::byte* bytes(std::vector<double>& numbers) {
    return reinterpret_cast<std::byte*>(numbers.data());
  }
  void fill_batch();
  double mean_loss();
  void backward(bool accumulate) {
    graph_.forward(context_, {});
    graph_.evaluate_loss(context_, true);
    graph_.backward(context_, accumulate, {});
  }
  bool difference(double middle, double& weight, double& slope);
  void compare(double found, double expected, const std::string& place,
               GradientCheck& result) const;

  const GraphSpec& spec_;
  const GradientCheckOptions& options_;
  Graph graph_;
  LocalContext context_;
  StepState state_;
  std::vector<double> weights_, gradients_;
};

void Checker::fill_batch() {
  Random random(stream_key(options_.seed, "batch"));
  const bool classes = spec_.loss().counts_correct();
  const std::size_t outputs = spec_.output_shape().elements();
  const Tensor input = graph_.input(), target = graph_.target();
  for (std::size_t row = 0; row < options_.rows; ++row) {
    graph_.ids()[row] = std::int64_t(100 + row);
    const bool used = row < options_.examples;
    for (std::size_t i = 0; i < input.columns(); ++i) {
      double number = random.uniform(-1, 1);
      if (options_.input) number = double(options_.input(row, i));
      input.as<double>()[row * input.columns() + i] =
          used ? number : std::numeric_limits<double>::quiet_NaN();
    }
    for (std::size_t i = 0; i < target.columns(); ++i) {
      float number = float(random.uniform(-1, 1));
      if (classes) number = float(random.below(outputs));
      if (options_.target) number = options_.target(row, i);
      target.as<float>()[row * target.columns() + i] = number;
    }
  }
}

double Checker::mean_loss() {
  graph_.forward(context_, {});
  graph_.evaluate_loss(context_, false);
  double sum = 0;
  for (std::size_t row = 0; row < options_.examples; ++row)
    sum += graph_.losses().as<double>()[row];
  return sum * state_.inverse_examples;
}

// Computes the slope of the loss, which is `middle` here, along one weight. Returns false if the
// weight is at a kink: the differences to the left and to the right disagree however small the step
// is.
bool Checker::difference(double middle, double& weight, double& slope) {
  const double here = weight;
  for (double step = options_.step; step > options_.step / 1000; step /= 10) {
    weight = here + step;
    const double above = mean_loss();
    weight = here - step;
    const double below = mean_loss();
    weight = here;
    const double right = (above - middle) / step, left = (middle - below) / step;
    slope = (above - below) / (2 * step);
    if (!std::isfinite(slope)) return true;
    if (std::abs(right - left) <= 1e-3 * std::max({std::abs(left), std::abs(right), 0.01})) {
      return true;
    }
  }
  return false;
}

void Checker::compare(double found, double expected, const std::string& place,
                      GradientCheck& result) const {
  double error =
      std::abs(found - expected) / std::max({std::abs(found), std::abs(expected), options_.floor});
  if (!std::isfinite(error)) error = std::numeric_limits<double>::infinity();
  if (error <= result.worst && !result.place.empty()) return;
  result.worst = error;
  result.place = fmt::format("{}: {}, differences say {}", place, found, expected);
}

// The arena begins with a number that the first backward must replace and the second must add to.
GradientCheck Checker::run() {
  constexpr double kBefore = 0.75;
  std::fill(gradients_.begin(), gradients_.end(), kBefore);
  backward(false);
  const std::vector<double> written = gradients_;
  std::fill(gradients_.begin(), gradients_.end(), kBefore);
  backward(true);
  const std::vector<double> added = gradients_;

  const double middle = mean_loss();
  GradientCheck result;
  for (const Parameter& parameter : graph_.layout()) {
    if (parameter.frozen) continue;
    const std::size_t count = parameter.range.size();
    Random random(stream_key(options_.seed, parameter.name + " samples"));
    for (std::size_t sample = 0; sample < std::min(count, options_.samples); ++sample) {
      const std::size_t i = count <= options_.samples ? sample : random.below(count);
      const std::size_t at = parameter.range.begin + i;
      double slope = 0;
      if (!difference(middle, weights_[at], slope)) {
        ++result.kinks;
        continue;
      }
      ++result.checked;
      const std::string place = fmt::format("{}[{}]", parameter.name, i);
      compare(written[at], slope, place, result);
      compare(added[at] - kBefore, slope, place + " (added)", result);
    }
  }
  return result;
}

void check_options(const Ops& ops, const GradientCheckOptions& options) {
  require(ops.dtype() == DType::kFloat64,
          "check_gradient: differences need kernels of float64, not {}", name(ops.dtype()));
  require(options.rows > 0 && options.examples <= options.rows,
          "check_gradient: {} examples do not fit {} rows", options.examples, options.rows);
}

}  // namespace

GradientCheck check_gradient(Ops& ops, std::shared_ptr<const Layer> layer,
                             const std::vector<Shape>& inputs,
                             const GradientCheckOptions& options) {
  check_options(ops, options);
  GraphSpec spec("gradient check", {1});
  std::vector<GraphSpec::Value> values;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    values.push_back(spec.add(fmt::format("input{}", i),
                              std::make_shared<Probe>(options.rows, inputs[i]), spec.input()));
  }
  spec.add("layer", std::move(layer), std::move(values));
  spec.set_loss(std::make_shared<WeightedSum>(options.seed));
  Checker checker(ops, spec, options);
  checker.scatter();
  return checker.run();
}

GradientCheck check_gradient(Ops& ops, std::shared_ptr<const Loss> loss, const Shape& output,
                             const GradientCheckOptions& options) {
  check_options(ops, options);
  GraphSpec spec("gradient check", {1});
  spec.then("output", std::make_shared<Probe>(options.rows, output));
  spec.set_loss(std::move(loss));
  Checker checker(ops, spec, options);
  checker.scatter();
  return checker.run();
}

GradientCheck check_gradient(Ops& ops, const GraphSpec& spec, const GradientCheckOptions& options) {
  check_options(ops, options);
  return Checker(ops, spec, options).run();
}

}  // namespace lockstep::engine
