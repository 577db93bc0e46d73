// SPDX-License-Identifier: MIT
// A whole program: digits, a convolutional network, a strategy. The others differ in one line.
#include <lockstep/lockstep.h>

int main(int argc, char** argv) {
  lockstep::Session session(argc, argv);  // devices, launcher; MPI where it is needed
  auto strategy = lockstep::mirrored(session, {.replicas = 2});
  auto digits = argc > 1 ? lockstep::data::idx(argv[1])
                         : lockstep::data::generated_digits({.train = 1000, .test = 200});
  lockstep::Trainer trainer(strategy, lockstep::models::mnist_cnn(),
                            lockstep::optim::sgd({.rate = 0.02, .momentum = 0.9}));
  trainer.fit(*digits.train, {.epochs = 2, .global_batch = 64});
  const lockstep::Evaluation test = trainer.evaluate(*digits.test);
  if (strategy.membership().chief) {
    fmt::print("accuracy {:.4f}\n{}\n", test.accuracy, strategy.explain());
  }
  return test.accuracy > 0.3 ? 0 : 1;
}
