// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/scheduler_client.h"

#include <utility>

#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/server/message_values.h"

namespace lockstep::strategies {

using engine::Clock;
using engine::Code;
using engine::Error;

namespace {

template <class Head>
Head chief_answer(const rpc::Message& message) {
  Head head;
  if (!head.ParseFromString(message.head))
    engine::fail(Code::kCorrupt, "the chief's answer cannot be read");
  return head;
}

// Returns the error of a call to the chief. A chief is not restarted: its loss ends the job.
Error without_chief(Code code, std::string_view why) {
  // The chief's abort is not a defect of this process.
  if (code == Code::kAborted) return {Code::kPeerLost, std::string(why)};
  if (code != Code::kUnavailable && code != Code::kTimeout && code != Code::kPeerLost)
    return {code, std::string(why)};
  return {code, fmt::format("without the chief the job ends: {}", why)};
}

}  // namespace

SchedulerClient::SchedulerClient(std::unique_ptr<rpc::Connection> chief,
                                 const SchedulerClientOptions& options)
    : options_(options),
      chief_(std::make_unique<rpc::Retry>(std::move(chief),
                                          rpc::RetryOptions{.seed = std::uint64_t(options.first)})),
      pending_(std::size_t(options.count)) {}

// First prevents new heartbeats, then waits for the one in flight.
SchedulerClient::~SchedulerClient() {
  {
    std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  work_.reset();
  chief_.reset();
}

rpc::Message SchedulerClient::call(std::string_view method, rpc::Message request) {
  try {
    return rpc::call(*chief_, method, std::move(request), Clock::now() + options_.deadline);
  } catch (const Error& error) {
    if (error.code() == Code::kPeerLost) lost_ = true;
    throw without_chief(error.code(), error.what());
  }
}

void SchedulerClient::attach(const std::string& job) {
  AttachRequest request;
  request.set_worker(std::uint32_t(options_.first));
  request.set_workers(std::uint32_t(options_.count));
  request.set_job(job);
  const bool first = incarnation_ == 0;
  const auto head = chief_answer<AttachReply>(call("Attach", message_of(request)));
  {
    // From here on replies to earlier heartbeats are ignored.
    std::scoped_lock lock(mutex_);
    incarnation_ = head.incarnation();
    lost_ = false;
  }
  if (first) send_heartbeat();
}

void SchedulerClient::send_heartbeat() {
  HeartbeatRequest request;
  request.set_worker(std::uint32_t(options_.first));
  request.set_incarnation(incarnation_);
  const std::uint64_t asked = incarnation_;
  chief_->start("Heartbeat", message_of(request), Clock::now() + options_.deadline,
                [this, asked](rpc::Reply reply) {
                  std::scoped_lock lock(mutex_);
                  if (asked == incarnation_) handle_heartbeat(reply);
                  if (!closing_)
                    work_->add(Clock::now() + options_.heartbeat_interval,
                               [this] { send_heartbeat(); });
                });
}

// Requires the lock, so that a loss is reported before this process attaches again.
void SchedulerClient::handle_heartbeat(const rpc::Reply& reply) {
  if (closing_) return;
  std::optional<Error> why;
  if (!reply.ok()) {
    if (reply.code == Code::kPeerLost) lost_ = true;
    why.emplace(without_chief(reply.code, fmt::format("{}: {}", chief_->address(), reply.why)));
  } else {
    HeartbeatReply head;
    if (!head.ParseFromString(reply.message.head)) return;
    newest_generation_ = head.generation();
    if (!superseded()) return;
    why.emplace(Code::kUnavailable, "the chief begins anew");
  }
  if (tell_) tell_(*why);
}

bool SchedulerClient::superseded() const {
  return generation_ != 0 && newest_generation_ > generation_;
}

void SchedulerClient::leave_segment() {
  std::scoped_lock lock(mutex_);
  generation_ = 0;
}

void SchedulerClient::when_lost(std::function<void(const Error&)> tell) {
  std::scoped_lock lock(mutex_);
  tell_ = std::move(tell);
}

std::optional<Segment> SchedulerClient::next_segment() {
  leave_segment();
  for (;;) {
    SegmentRequest request;
    request.set_worker(std::uint32_t(options_.first));
    request.set_incarnation(incarnation_);
    request.set_fit(fit_);
    const auto head = chief_answer<SegmentReply>(call("NextSegment", message_of(request)));
    if (head.what() == SegmentReply::OVER) {
      ++fit_;
      return std::nullopt;
    }
    if (head.what() != SegmentReply::STEPS) continue;
    segment_ = {};
    segment_.number = head.segment();
    segment_.generation = head.generation();
    segment_.base = head.base();
    engine::WorkSpec& work = segment_.work;
    work.examples = head.examples();
    work.global_batch = head.batch();
    work.first_step = head.first_step();
    work.steps = head.steps();
    work.position = {head.position().epoch(), head.position().example()};
    work.run_steps = head.run_steps();
    work.seed = head.seed();
    stopped_ = false;
    for (Pending& reports : pending_) reports = {.calls = reports.calls};
    generation_ = segment_.generation;
    return segment_;
  }
}

std::optional<engine::Work> SchedulerClient::call_next(int worker, bool only_done) {
  Pending& reports = pending(worker);
  NextRequest request;
  request.set_worker(std::uint32_t(worker));
  request.set_incarnation(incarnation_);
  request.set_segment(segment_.number);
  for (const std::int64_t step : reports.done) request.add_done(step);
  for (const auto& [step, share] : reports.shares) {
    Share* const to = request.add_shares();
    to->set_step(step);
    to->set_loss(share.loss);
    to->set_correct(share.correct);
    to->set_examples(share.examples);
  }
  request.set_stop(reports.stop);
  request.set_only_done(only_done);
  request.set_call(++reports.calls);
  const auto head = chief_answer<NextReply>(call("Next", message_of(request)));
  reports = {.calls = reports.calls};
  if (head.stopped()) stopped_ = true;
  if (!head.work()) return std::nullopt;
  engine::Work work;
  work.step = head.step();
  work.epoch = head.epoch();
  work.local_batch = {head.begin(), head.end()};
  work.global_batch = head.whole();
  work.after = {head.after().epoch(), head.after().example()};
  return work;
}

std::optional<engine::Work> SchedulerClient::next(int worker) {
  return call_next(worker, false);
}

void SchedulerClient::done(int worker, std::int64_t step) {
  pending(worker).done.push_back(step);
}

void SchedulerClient::report(int worker, std::int64_t step, const engine::Totals& share) {
  pending(worker).shares.emplace_back(step, share);
}

void SchedulerClient::flush(int worker) {
  const Pending& reports = pending(worker);
  if (!reports.done.empty() || !reports.shares.empty() || reports.stop) call_next(worker, true);
}

void SchedulerClient::stop(int worker) {
  pending(worker).stop = true;
}

}  // namespace lockstep::strategies
