// SPDX-License-Identifier: MIT
#include "test/collectives/tcp/tcp_ranks.h"

#include <exception>
#include <mutex>
#include <thread>

#include "engine/base/error.h"

namespace lockstep::collectives {

std::string on_loopback(const TcpFabric& fabric) {
  const std::string address = fabric.address();
  return "127.0.0.1" + address.substr(address.rfind(':'));
}

void on_threads(int ranks, const std::function<void(int)>& body) {
  std::exception_ptr first;
  std::mutex mutex;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
    }
  }
  if (first) std::rethrow_exception(first);
}

std::vector<std::unique_ptr<Transport>> connect_all(int ranks) {
  std::vector<std::unique_ptr<TcpFabric>> fabrics;
  std::vector<std::string> address;
  for (int rank = 0; rank < ranks; ++rank) {
    fabrics.push_back(std::make_unique<TcpFabric>(kLoopback));
    address.push_back(on_loopback(*fabrics.back()));
  }
  std::vector<std::unique_ptr<Transport>> transports;
  transports.resize(std::size_t(ranks));
  on_threads(ranks, [&](int rank) {
    std::vector<std::pair<int, int>> pairs;
    for (int other = 0; other < ranks; ++other) {
      if (other != rank) pairs.emplace_back(rank, other);
    }
    transports[std::size_t(rank)] = std::move(fabrics[std::size_t(rank)]->connect(
        {rank}, pairs, address, kTestKey, std::chrono::seconds(60))[0]);
  });
  return transports;
}

void wait_until(Transport& transport, const std::function<bool()>& condition) {
  const auto end = engine::Clock::now() + std::chrono::seconds(60);
  while (!condition()) {
    if (engine::Clock::now() > end) engine::fail(engine::Code::kTimeout, "60 s");
    if (!transport.progress()) transport.sleep(2000);
  }
}

void wait_until_still(Transport& transport) {
  wait_until(transport, [&] {
    transport.sleep(100'000);
    return !transport.progress();
  });
}

void wait_for(Transport& transport, int request) {
  wait_until(transport, [&] { return transport.test(request); });
}

}  // namespace lockstep::collectives
