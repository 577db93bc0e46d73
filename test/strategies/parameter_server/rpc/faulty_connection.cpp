// SPDX-License-Identifier: MIT
#include "test/strategies/parameter_server/rpc/faulty_connection.h"

#include <algorithm>

namespace lockstep::test {

using strategies::rpc::Done;
using strategies::rpc::Message;
using strategies::rpc::Reply;

struct FaultyConnection::Call {
  std::string method;
  Message request;
  engine::Clock::time_point deadline;
  Done done;
  Fault fault;
};

FaultyConnection::FaultyConnection(std::unique_ptr<strategies::rpc::Connection> connection,
                                   std::function<Fault(std::size_t)> fault)
    : connection_(std::move(connection)),
      address_(connection_->address()),
      fault_(std::move(fault)) {}

FaultyConnection::~FaultyConnection() {
  work_.reset();
  connection_.reset();
  for (const auto& call : std::exchange(open_, {}))
    call->done(strategies::rpc::failed(engine::Code::kAborted, "the connection was closed"));
}

void FaultyConnection::start(std::string_view method, Message request,
                             engine::Clock::time_point deadline, Done done) {
  const auto call = std::make_shared<Call>(
      Call{std::string(method), std::move(request), deadline, std::move(done), fault_(calls_++)});
  {
    const std::lock_guard lock(mutex_);
    open_.push_back(call);
  }
  work_->add(engine::Clock::now() + call->fault.delay, [this, call] { send(call); });
}

void FaultyConnection::send(const std::shared_ptr<Call>& call) {
  if (call->fault.what == Fault::What::kNotSent)
    return end(call, strategies::rpc::failed(call->fault.code, "not sent, as the test wants"));
  connection_->start(call->method, call->request, call->deadline, [this, call](Reply reply) {
    if (call->fault.what == Fault::What::kReplyLost)
      reply = strategies::rpc::failed(call->fault.code, "the reply is lost, as the test wants");
    end(call, std::move(reply));
  });
}

void FaultyConnection::end(const std::shared_ptr<Call>& call, Reply reply) {
  {
    const std::lock_guard lock(mutex_);
    open_.erase(std::find(open_.begin(), open_.end(), call));
  }
  call->done(std::move(reply));
}

}  // namespace lockstep::test
