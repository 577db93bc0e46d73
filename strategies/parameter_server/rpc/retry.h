// SPDX-License-Identifier: MIT
// A connection that repeats calls that fail with kUnavailable, until their deadline. A call may
// therefore be executed twice: if a reply was lost, the service has already executed it.
//
// Pauses double from the first to the longest. Each is shortened by a random part of up to a half.
// So the clients of a restarted server do not all return at once. No thread waits during a pause.
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
  std::uint64_t seed = 0;  // different clients need different pauses
};

class Retry : public Connection {
 public:
  explicit Retry(std::unique_ptr<Connection> connection, RetryOptions options = {});
  ~Retry() override;
  // Reports the number of attempts in the error's text if there were several. The code is that of
  // the last attempt.
  void start(std::string_view method, Message request, engine::Clock::time_point deadline,
             Done done) override;
  std::string address() const override { return connection_->address(); }
  std::uint64_t retries() const { return retries_; }  // attempts beyond the first of each call

 private:
  struct Call;
  void attempt(const std::shared_ptr<Call>& call);
  void came(const std::shared_ptr<Call>& call, Reply reply);
  void end(const std::shared_ptr<Call>& call, Reply reply);
  engine::Clock::duration pause(int attempts);  // requires the lock

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
