// SPDX-License-Identifier: MIT
// A connection that tries again where another said kUnavailable, until the call's deadline. What is
// called may therefore be done twice: where a reply was lost, the service has done it already.
//
// Pauses double from the first to the longest, and each is shortened by a random part of up to a
// half, so that many clients of a server that comes back do not come at once. Nobody waits in them.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "engine/base/random.h"
#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::strategies::rpc {

struct RetryOptions {
  std::chrono::milliseconds first_pause{20}, longest_pause{1000};
  std::uint64_t seed = 0;  // other clients, other pauses
};

class Retry : public Connection {
 public:
  explicit Retry(std::unique_ptr<Connection> connection, RetryOptions options = {});
  ~Retry() override;
  // A call that ends after several attempts says so in its text; its code is that of the last one.
  void start(std::string_view method, Message request, engine::Clock::time_point deadline,
             Done done) override;
  std::string address() const override { return connection_->address(); }
  std::uint64_t retries() const { return retries_; }  // attempts beyond the first of each call

 private:
  struct Call;
  void attempt(const std::shared_ptr<Call>& call);
  void came(const std::shared_ptr<Call>& call, Reply reply);
  void end(const std::shared_ptr<Call>& call, Reply reply);
  engine::Clock::duration pause(int attempts);  // under the lock

  RetryOptions options_;
  std::unique_ptr<Connection> connection_;
  std::atomic<std::uint64_t> retries_ = 0;
  std::mutex mutex_;
  bool closing_ = false;
  engine::Random random_;
  std::unordered_set<std::shared_ptr<Call>> open_;
  std::unique_ptr<TimedWork> work_;
};

}  // namespace lockstep::strategies::rpc
