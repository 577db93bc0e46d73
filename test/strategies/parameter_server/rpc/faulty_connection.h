// SPDX-License-Identifier: MIT
// A connection that injects faults by the number of the call. A call can fail before it is sent,
// its reply can be lost after the service executed it, or it can be delayed.
#pragma once
#include <atomic>
#include <functional>
#include <memory>

#include "strategies/parameter_server/rpc/rpc.h"
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::test {

struct Fault {
  enum class What { kNone, kNotSent, kReplyLost };
  What what = What::kNone;
  engine::Clock::duration delay{0};  // before it is sent or fails
  engine::Code code = engine::Code::kUnavailable;
};

class FaultyConnection : public strategies::rpc::Connection {
 public:
  // `fault` is called for call 0, 1, ... in the order in which they start, without a lock held.
  FaultyConnection(std::unique_ptr<strategies::rpc::Connection> connection,
                   std::function<Fault(std::size_t call)> fault);
  ~FaultyConnection() override;
  void start(std::string_view method, strategies::rpc::Message request,
             engine::Clock::time_point deadline, strategies::rpc::Done done) override;
  std::string address() const override { return address_; }
  std::size_t calls() const { return calls_; }

 private:
  struct Call;
  void send(const std::shared_ptr<Call>& call);
  void end(const std::shared_ptr<Call>& call, strategies::rpc::Reply reply);

  std::unique_ptr<strategies::rpc::Connection> connection_;
  std::string address_;
  std::function<Fault(std::size_t)> fault_;
  std::atomic<std::size_t> calls_ = 0;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Call>> open_;
  std::unique_ptr<strategies::TimedWork> work_ = std::make_unique<strategies::TimedWork>();
};

}  // namespace lockstep::test
