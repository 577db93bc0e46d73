// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/in_process.h"

#include <atomic>
#include <mutex>
#include <unordered_set>

namespace lockstep::strategies::rpc {

using engine::Code;

class InProcess::Call : public Caller {
 public:
  explicit Call(Done whom) : done(std::move(whom)) {}
  std::string peer() const override { return "this process"; }
  bool gone() const override { return answered; }

  Done done;
  std::atomic<bool> answered = false;  // set once, under Calls::mutex
  TimedWork::Ticket timeout = {};      // guarded by the same mutex
};

struct InProcess::Calls {
  std::mutex mutex = {};
  TimedWork* work = nullptr;  // null: the connection is closed
  std::unordered_set<std::shared_ptr<Call>> open = {};

  // Delivers the first answer: the service's or the deadline's.
  void answer(const std::shared_ptr<Call>& call, Reply reply) {
    const std::lock_guard lock(mutex);
    if (work == nullptr || call->answered.exchange(true)) return;
    work->remove(call->timeout);
    work->add([this, call, reply = std::move(reply)]() mutable {
      call->done(std::move(reply));
      const std::lock_guard again(mutex);
      open.erase(call);
    });
  }
};

InProcess::InProcess(Service& service, std::string address)
    : service_(service),
      address_(std::move(address)),
      calls_(std::make_shared<Calls>()),
      work_(std::make_unique<TimedWork>()) {
  calls_->work = work_.get();
}

InProcess::~InProcess() {
  {
    const std::lock_guard lock(calls_->mutex);
    calls_->work = nullptr;
  }
  work_.reset();
  // No other thread uses the calls now: the work thread has ended, and answers are dropped.
  for (const auto& call : calls_->open) {
    call->answered = true;
    call->done(failed(Code::kAborted, "the connection was closed"));
  }
}

void InProcess::start(std::string_view method, Message request, engine::Clock::time_point deadline,
                      Done done) {
  for (Slice& slice : request.body) slice = owned(slice);
  const auto call = std::make_shared<Call>(std::move(done));
  {
    const std::lock_guard lock(calls_->mutex);
    calls_->open.insert(call);
    call->timeout = work_->add(deadline, [calls = calls_.get(), call] {
      calls->answer(call, failed(Code::kTimeout, "the deadline passed"));
    });
  }
  work_->add([this, call, method = std::string(method), request = std::move(request)]() mutable {
    if (call->gone()) return;
    service_.call(method, std::move(request), call,
                  [calls = calls_, call](Reply reply) { calls->answer(call, std::move(reply)); });
  });
}

}  // namespace lockstep::strategies::rpc
