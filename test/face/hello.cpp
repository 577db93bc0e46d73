// SPDX-License-Identifier: MIT
// The smallest program: it prints the location of each rank and the chosen algorithm.
#include <lockstep/lockstep.h>

int main(int argc, char** argv) try {
  lockstep::Session session(argc, argv);
  auto strategy = lockstep::collective_all_reduce(session);
  lockstep::engine::OpenOptions options;
  options.global_batch = 1;
  strategy.open(lockstep::models::build("mlp"), lockstep::optim::sgd().rule, options);
  const int rank = strategy.membership().rank;
  const auto& topology = strategy.topology();
  fmt::print("Hello from rank {} of {} on host {}, device {}, all-reduce {}\n", rank,
             strategy.membership().size, topology.name_of_host(rank),
             topology.ranks[std::size_t(rank)].device, strategy.algorithm());
  return 0;
} catch (const lockstep::Error& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
