// SPDX-License-Identifier: MIT
// A user-defined training loop: a linear model with a manual gradient, without a graph. The
// communicator sums gradients over ranks: processes under mpirun, or threads of one process.
//
//   own_loop            two threads
//   mpirun -n 2 own_loop
#include <lockstep/lockstep.h>

#include <atomic>
#include <cmath>
#include <vector>

namespace {

constexpr std::size_t kInputs = 8, kExamples = 240, kSteps = 200;
constexpr float kRate = 0.2f;

// Returns the parameters of y = 1 x0 + 2 x1 + ... + 0.5, the same on every rank.
float truth(std::size_t i) {
  return i < kInputs ? float(i + 1) : 0.5f;
}
float input(std::size_t example, std::size_t i) {
  return float(std::sin(double(example * 17 + i * 5 + i * i * example)));
}

// Returns the largest error of a learned parameter.
float train(lockstep::Communicator& ranks) {
  std::vector<float> weights(kInputs, 0.1f * float(ranks.rank())), bias(1);
  ranks.broadcast(std::span(weights));  // all start from rank 0's weights
  // The buckets are in the order in which backward finishes them. The bias' gradient has its own
  // memory; that of the weights lies in the bucket.
  std::vector<float> bias_gradient(1);
  lockstep::Buckets<float> buckets(ranks, {{bias_gradient.data(), 1}, {nullptr, kInputs}});
  const std::span<float> gradient = buckets.gradient(1);
  for (std::size_t step = 0; step < kSteps; ++step) {
    bias_gradient[0] = 0;
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    std::size_t mine = 0;
    for (auto example = std::size_t(ranks.rank()); example < kExamples;
         example += std::size_t(ranks.size()), ++mine) {
      float error = bias[0] - truth(kInputs);
      for (std::size_t i = 0; i < kInputs; ++i)
        error += (weights[i] - truth(i)) * input(example, i);
      bias_gradient[0] += error;
      for (std::size_t i = 0; i < kInputs; ++i) gradient[i] += error * input(example, i);
    }
    for (float& g : gradient) g /= float(mine);
    bias_gradient[0] /= float(mine);
    buckets.ready(0);
    buckets.ready(1);
    buckets.wait();  // the means over all ranks
    if (ranks.rank() == 0 && step % 50 == 0) fmt::print("step {}: bias {:.4f}\n", step, bias[0]);
    bias[0] -= kRate * bias_gradient[0];
    for (std::size_t i = 0; i < kInputs; ++i) weights[i] -= kRate * gradient[i];
  }
  float worst = std::abs(bias[0] - truth(kInputs));
  for (std::size_t i = 0; i < kInputs; ++i)
    worst = std::max(worst, std::abs(weights[i] - truth(i)));
  fmt::print("rank {} of {}: weight 0 is {:.4f}, largest error {:.4f}\n", ranks.rank(),
             ranks.size(), weights[0], worst);
  return worst;
}

}  // namespace

int main(int argc, char** argv) try {
  lockstep::Session session(argc, argv);
  std::atomic<bool> learned{true};
  auto body = [&](lockstep::Communicator& ranks) { learned = train(ranks) < 0.05f && learned; };
  if (session.launch().size > 1) {
    auto communicator = lockstep::communicator(session);
    body(communicator);
  } else {
    lockstep::run_ranks(session, 2, body);
  }
  return learned ? 0 : 1;
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
