// SPDX-License-Identifier: MIT
// A complete program with a user-defined layer. Its backward is checked against finite differences,
// then it trains in a model with lockstep's layers, on two replicas. nn/layer.h
// documents each function.
#include <lockstep/lockstep.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace {

// Multiplies each column by its own weight: y = x w. One class serves float32, in which processors
// train, and float64, in which gradients are checked.
class Scale final : public lockstep::Layer {
 public:
  std::string describe() const override { return "scale"; }
  lockstep::Shape output_shape(std::span<const lockstep::Shape> inputs) const override {
    lockstep::require(inputs.size() == 1, "takes one input, not {}", inputs.size());
    return inputs[0];
  }
  std::vector<lockstep::ParameterSpec> parameters(
      std::span<const lockstep::Shape> inputs) const override {
    return {{"weight", {inputs[0].elements()}, lockstep::constant(1)}};
  }
  void forward(lockstep::Context& context, const lockstep::ForwardArguments& a) const override {
    if (a.y.dtype == lockstep::DType::kFloat32) return forward_in<float>(context, a);
    lockstep::require(a.y.dtype == lockstep::DType::kFloat64,
                      "layer {}: scale computes in float32 and float64, not in {}", *a.name,
                      lockstep::engine::name(a.y.dtype));
    forward_in<double>(context, a);
  }
  void backward(lockstep::Context& context, const lockstep::BackwardArguments& a) const override {
    if (a.y.dtype == lockstep::DType::kFloat32) return backward_in<float>(context, a);
    backward_in<double>(context, a);
  }

 private:
  // How many numbers lie in the rows that count; the rows after them are left alone.
  static std::size_t in_use(const lockstep::Context& context, const lockstep::Tensor& y) {
    return std::size_t(context.state->examples) * y.columns();
  }
  template <class T>
  static void forward_in(const lockstep::Context& context, const lockstep::ForwardArguments& a) {
    const std::size_t columns = a.y.columns();
    for (std::size_t i = 0; i < in_use(context, a.y); ++i) {
      a.y.as<T>()[i] = a.x[0].as<T>()[i] * a.w[0].as<T>()[i % columns];
    }
  }
  // dx = dy w; dw = the sum over the rows of dy x. Either may be unwanted, and then is null.
  template <class T>
  static void backward_in(const lockstep::Context& context, const lockstep::BackwardArguments& a) {
    const std::size_t columns = a.y.columns();
    const lockstep::Tensor dw = a.dw[0], dx = a.dx[0];
    if (dw && !a.accumulate) std::fill_n(dw.as<T>(), columns, T(0));
    for (std::size_t i = 0; i < in_use(context, a.y); ++i) {
      const T g = a.dy.as<T>()[i];
      if (dw) dw.as<T>()[i % columns] += g * a.x[0].as<T>()[i];
      if (dx) dx.as<T>()[i] = g * a.w[0].as<T>()[i % columns];
    }
  }
};

// Checks backward against finite differences of forward, for shapes of several ranks.
bool gradients_are_right() {
  const auto ops = lockstep::reference_ops(lockstep::DType::kFloat64);
  for (const lockstep::Shape& shape :
       {lockstep::Shape{5}, lockstep::Shape{3, 2, 2}, lockstep::Shape{1}}) {
    const lockstep::GradientCheck check =
        lockstep::check_gradient(*ops, std::make_shared<Scale>(), {shape});
    fmt::print("gradients: {} numbers, worst error {:.1e} {}\n", check.checked, check.worst,
               check.place);
    if (!(check.worst < 1e-6) || check.checked == 0) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) try {
  if (!gradients_are_right()) return 1;

  lockstep::GraphSpec graph("scaled_mlp", {28, 28, 1});
  graph.then("scale", std::make_shared<Scale>());
  graph.then("dense1", lockstep::dense(64));
  graph.then("relu1", lockstep::relu());
  graph.then("dense2", lockstep::dense(10));
  graph.set_loss(lockstep::softmax_cross_entropy());

  lockstep::Session session(argc, argv);
  auto strategy = lockstep::mirrored(session, {.replicas = 2, .threads = 1});
  const auto digits = lockstep::data::generated_digits({.train = 1000, .test = 200});
  lockstep::Trainer trainer(strategy, graph, lockstep::optim::sgd({.rate = 0.05, .momentum = 0.9}));
  const auto report = [](const lockstep::EpochReport& epoch) {
    fmt::print("epoch {}: loss {:.4f}\n", epoch.number, epoch.loss);
  };
  trainer.fit(*digits.train, {.epochs = 4, .global_batch = 50, .on_epoch = report});
  const double accuracy = trainer.evaluate(*digits.test).accuracy;
  fmt::print("accuracy {:.4f}\n", accuracy);
  return accuracy > 0.5 ? 0 : 1;
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
