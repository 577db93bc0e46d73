// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/retry.h"

#include <algorithm>

namespace lockstep::strategies::rpc {

using engine::Clock;
using engine::Code;

struct Retry::Call {
  std::string method;
  Message request;
  Clock::time_point deadline;
  Done done;
  int attempts = 0;
};

Retry::Retry(std::unique_ptr<Connection> connection, RetryOptions options)
    : options_(options),
      connection_(std::move(connection)),
      random_(engine::stream_key(options.seed, "pauses before another attempt")),
      work_(std::make_unique<TimedWork>()) {
  engine::require(options.first_pause.count() > 0 && options.longest_pause >= options.first_pause,
                  "pauses of {} to {} ms between attempts cannot be", options.first_pause.count(),
                  options.longest_pause.count());
}

Retry::~Retry() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;  // prevents further attempts from being scheduled
  }
  work_.reset();        // prevents further attempts from being started
  connection_.reset();  // waits for attempts in flight
  // The remaining calls were between two attempts.
  const auto open = std::exchange(open_, {});
  for (const auto& call : open) call->done(failed(Code::kAborted, "the connection was closed"));
}

void Retry::start(std::string_view method, Message request, Clock::time_point deadline, Done done) {
  const auto call = std::make_shared<Call>(
      Call{std::string(method), std::move(request), deadline, std::move(done)});
  {
    const std::lock_guard lock(mutex_);
    open_.insert(call);
  }
  attempt(call);
}

void Retry::attempt(const std::shared_ptr<Call>& call) {
  ++call->attempts;
  connection_->start(call->method, call->request, call->deadline,
                     [this, call](Reply reply) { came(call, std::move(reply)); });
}

void Retry::came(const std::shared_ptr<Call>& call, Reply reply) {
  if (reply.ok() || reply.code != Code::kUnavailable) return end(call, std::move(reply));
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point again = Clock::now() + pause(call->attempts);
    if (!closing_ && again < call->deadline) {
      ++retries_;
      work_->add(again, [this, call] { attempt(call); });
      return;
    }
    if (closing_) reply = failed(Code::kAborted, "the connection was closed");
  }
  end(call, std::move(reply));
}

void Retry::end(const std::shared_ptr<Call>& call, Reply reply) {
  if (!reply.ok() && call->attempts > 1)
    reply.why += fmt::format(" (tried {} times)", call->attempts);
  call->done(std::move(reply));
  const std::lock_guard lock(mutex_);
  open_.erase(call);
}

Clock::duration Retry::pause(int attempts) {
  const int doublings = std::min(attempts - 1, 20);
  const double full = std::min(double(options_.first_pause.count()) * double(1 << doublings),
                               double(options_.longest_pause.count()));
  const std::chrono::duration<double, std::milli> some(full * random_.uniform(0.5, 1));
  return std::chrono::duration_cast<Clock::duration>(some);
}

}  // namespace lockstep::strategies::rpc
