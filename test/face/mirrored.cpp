// SPDX-License-Identifier: MIT
// A complete program: digits, a convolutional network, a strategy. The others differ in one line.
#include <lockstep/lockstep.h>

int main(int argc, char** argv) try {
  lockstep::Session session(argc, argv);  // devices, launcher; MPI where it is needed
  auto strategy = lockstep::mirrored(session, {.replicas = 2});
  auto digits = argc > 1 ? lockstep::data::idx(argv[1])
                         : lockstep::data::generated_digits({.train = 3000, .test = 500});
  lockstep::Trainer trainer(strategy, lockstep::models::mnist_cnn(),
                            lockstep::optim::sgd({.rate = 0.02, .momentum = 0.9}));
  const auto report = [](const lockstep::EpochReport& epoch) {
    fmt::print("epoch {}: loss {:.4f}\n", epoch.number, epoch.loss);  // in one of the processes
  };
  trainer.fit(*digits.train, {.epochs = 3, .global_batch = 64, .on_epoch = report});
  const double accuracy = trainer.evaluate(*digits.test).accuracy;  // all processes call it
  if (strategy.membership().chief) {                                // one of them prints
    fmt::print("accuracy {:.4f}\n{}\n", accuracy, strategy.explain());
  }
  return 0;
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
