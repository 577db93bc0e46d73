// SPDX-License-Identifier: MIT
#include "strategies/grpc/library_threads.h"

#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::strategies::grpc {

void require_threads() {
  constexpr int kOfLibrary = 16;  // pollers, timers and executors before the first call
  std::latch over(1);
  std::vector<std::jthread> threads;
  try {
    for (int i = 0; i < kOfLibrary; ++i) threads.emplace_back([&] { over.wait(); });
  } catch (const std::system_error& error) {
    over.count_down();
    engine::fail(engine::Code::kIo,
                 "servers and their clients need {} threads for gRPC, and the system refuses: {} "
                 "(ulimit -u, or the container's limit of processes)",
                 kOfLibrary, error.code().message());
  }
  over.count_down();
}

}  // namespace lockstep::strategies::grpc
