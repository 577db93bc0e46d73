// SPDX-License-Identifier: MIT
// A complete program with a user-defined loss: its gradient is checked against finite differences,
// then a model learns digits with it, on two replicas. nn/loss.h documents each function.
#include <lockstep/lockstep.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

namespace {

// Computes cross-entropy with smoothed labels (Szegedy et al. 2016). A part `part` of the target
// distribution is spread evenly over all classes, so the model need not be more certain than the
// labels. With p = softmax(y) and the target distribution q: loss = -sum q log p; its gradient is p
// - q.
class SmoothedCrossEntropy final : public lockstep::Loss {
 public:
  explicit SmoothedCrossEntropy(double part) : part_(part) {}
  // All that the loss depends on: processes of a job compare this line.
  std::string describe() const override { return fmt::format("smoothed_cross_entropy {}", part_); }
  std::size_t target_columns(const lockstep::Shape& output) const override {
    lockstep::require(output.rank() == 1 && output[0] >= 2,
                      "smoothed_cross_entropy takes an output of at least 2 classes, not {}",
                      lockstep::engine::to_string(output));
    return 1;  // the class
  }
  bool counts_correct() const override { return true; }
  void evaluate(lockstep::Context& context, lockstep::Tensor y, lockstep::Tensor target,
                lockstep::Tensor dy, lockstep::Tensor losses,
                lockstep::Tensor correct) const override {
    if (y.dtype == lockstep::DType::kFloat32) {
      evaluate_in<float>(*context.state, y, target, dy, losses, correct);
    } else {
      lockstep::require(y.dtype == lockstep::DType::kFloat64,
                        "smoothed_cross_entropy computes in float32 and float64, not in {}",
                        lockstep::engine::name(y.dtype));
      evaluate_in<double>(*context.state, y, target, dy, losses, correct);
    }
  }

 private:
  template <class T>
  void evaluate_in(const lockstep::StepState& state, lockstep::Tensor y, lockstep::Tensor target,
                   lockstep::Tensor dy, lockstep::Tensor losses, lockstep::Tensor correct) const {
    const std::size_t classes = y.columns();
    // The gradient is of the mean over the batch of all replicas, not of this one's rows.
    const double weight = state.inverse_examples * state.loss_scale;
    for (std::size_t row = 0; row < std::size_t(state.examples); ++row) {
      const T* logits = y.as<T>() + row * classes;
      const std::size_t wanted = std::size_t(target.as<float>()[row]);
      const T* largest = std::max_element(logits, logits + classes);
      double sum = 0;
      for (std::size_t i = 0; i < classes; ++i) sum += std::exp(double(logits[i] - *largest));
      double loss = 0;
      for (std::size_t i = 0; i < classes; ++i) {
        const double log_p = double(logits[i] - *largest) - std::log(sum);
        const double q = part_ / double(classes) + (i == wanted ? 1 - part_ : 0);
        loss -= q * log_p;
        if (dy) dy.as<T>()[row * classes + i] = T((std::exp(log_p) - q) * weight);
      }
      losses.as<double>()[row] = loss;
      correct.as<double>()[row] = std::size_t(largest - logits) == wanted ? 1 : 0;
    }
  }
  double part_;
};

bool gradient_is_right(double part) {
  const auto ops = lockstep::reference_ops(lockstep::DType::kFloat64);
  const lockstep::GradientCheck check =
      lockstep::check_gradient(*ops, std::make_shared<SmoothedCrossEntropy>(part), {7});
  fmt::print("gradient: {} numbers, worst error {:.1e} {}\n", check.checked, check.worst,
             check.place);
  return check.worst < 1e-6 && check.checked > 0;
}

}  // namespace

int main(int argc, char** argv) try {
  if (!gradient_is_right(0.1) || !gradient_is_right(0)) return 1;

  lockstep::GraphSpec graph("smoothed_mlp", {28, 28, 1});
  graph.then("dense1", lockstep::dense(64));
  graph.then("relu1", lockstep::relu());
  graph.then("dense2", lockstep::dense(10));
  graph.set_loss(std::make_shared<SmoothedCrossEntropy>(0.1));

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
