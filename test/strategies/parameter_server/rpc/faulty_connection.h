// SPDX-License-Identifier: MIT
// A connection that fails when the test wants it: before a call is sent, or after the service did
// what was asked and its reply is lost; or that is slow. Faults go by the number of the call.
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
  engine::Clock::duration delay{0};  // before it is sent, or fails
  engine::Code code = engine::Code::kUnavailable;
};

class FaultyConnection : public strategies::rpc::Connection {
 public:
  // `fault` is asked for call 0, 1, ... in the order in which they start, under no lock.
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
