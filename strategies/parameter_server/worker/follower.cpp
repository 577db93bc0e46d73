// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/follower.h"

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

// A chief is not started again: who cannot reach it hears that the job is over.
Error without_chief(Code code, std::string_view why) {
  if (code == Code::kAborted) return {Code::kPeerLost, std::string(why)};  // that is no defect here
  if (code != Code::kUnavailable && code != Code::kTimeout && code != Code::kPeerLost)
    return {code, std::string(why)};
  return {code, fmt::format("without the chief the job ends: {}", why)};
}

}  // namespace

Follower::Follower(std::unique_ptr<rpc::Connection> chief, const FollowerOptions& options)
    : options_(options),
      chief_(std::make_unique<rpc::Retry>(std::move(chief),
                                          rpc::RetryOptions{.seed = std::uint64_t(options.first)})),
      told_(std::size_t(options.count)) {}

// No beat begins any more, and then none is under way.
Follower::~Follower() {
  {
    std::scoped_lock lock(mutex_);
    closing_ = true;
  }
  work_.reset();
  chief_.reset();
}

rpc::Message Follower::call(std::string_view method, rpc::Message request) {
  try {
    return rpc::call(*chief_, method, std::move(request), Clock::now() + options_.deadline);
  } catch (const Error& error) {
    if (error.code() == Code::kPeerLost) given_up_ = true;
    throw without_chief(error.code(), error.what());
  }
}

void Follower::attach(const std::string& job) {
  AttachRequest request;
  request.set_worker(std::uint32_t(options_.first));
  request.set_workers(std::uint32_t(options_.count));
  request.set_job(job);
  const bool first = incarnation_ == 0;
  const auto head = chief_answer<AttachReply>(call("Attach", message_of(request)));
  {
    std::scoped_lock lock(mutex_);  // no beat of before is being heard, or will be
    incarnation_ = head.incarnation();
    given_up_ = false;
  }
  if (first) beat();
}

void Follower::beat() {
  BeatRequest request;
  request.set_worker(std::uint32_t(options_.first));
  request.set_incarnation(incarnation_);
  const std::uint64_t asked = incarnation_;
  chief_->start("Beat", message_of(request), Clock::now() + options_.deadline,
                [this, asked](rpc::Reply reply) {
                  std::scoped_lock lock(mutex_);
                  if (asked == incarnation_) heard(reply);
                  if (!closing_) work_->add(Clock::now() + options_.beat, [this] { beat(); });
                });
}

// The lock is held, so that who hears of a loss hears of it before this process is there again.
void Follower::heard(const rpc::Reply& reply) {
  std::optional<Error> why;
  if (!reply.ok()) {
    if (reply.code == Code::kAborted && reply.why == "the connection was closed") return;
    if (reply.code == Code::kPeerLost) given_up_ = true;
    why.emplace(without_chief(reply.code, fmt::format("{}: {}", chief_->address(), reply.why)));
  } else {
    BeatReply head;
    if (!head.ParseFromString(reply.message.head)) return;
    open_ = head.generation();
    if (!superseded()) return;
    why.emplace(Code::kUnavailable, "the chief begins anew");
  }
  if (tell_) tell_(*why);
}

bool Follower::superseded() const {
  return expected_ != 0 && open_ > expected_;
}

void Follower::leave() {
  std::scoped_lock lock(mutex_);
  expected_ = 0;
}

void Follower::when_lost(std::function<void(const Error&)> tell) {
  std::scoped_lock lock(mutex_);
  tell_ = std::move(tell);
}

std::optional<Segment> Follower::order() {
  leave();
  for (;;) {
    OrderRequest request;
    request.set_worker(std::uint32_t(options_.first));
    request.set_incarnation(incarnation_);
    request.set_fit(fit_);
    const auto head = chief_answer<OrderReply>(call("Order", message_of(request)));
    if (head.what() == OrderReply::OVER) {
      ++fit_;
      return std::nullopt;
    }
    if (head.what() != OrderReply::STEPS) continue;
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
    for (Told& told : told_) told = {.calls = told.calls};
    expected_ = segment_.generation;
    return segment_;
  }
}

std::optional<engine::Work> Follower::ask(int worker, bool only_done) {
  Told& told = told_[std::size_t(worker - options_.first)];
  NextRequest request;
  request.set_worker(std::uint32_t(worker));
  request.set_incarnation(incarnation_);
  request.set_segment(segment_.number);
  for (const std::int64_t step : told.done) request.add_done(step);
  for (const auto& [step, share] : told.shares) {
    Share* const to = request.add_shares();
    to->set_step(step);
    to->set_loss(share.loss);
    to->set_correct(share.correct);
    to->set_examples(share.examples);
  }
  request.set_stop(told.stop);
  request.set_only_done(only_done);
  request.set_call(++told.calls);
  const auto head = chief_answer<NextReply>(call("Next", message_of(request)));
  told = {.calls = told.calls};
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

std::optional<engine::Work> Follower::next(int worker) {
  return ask(worker, false);
}

void Follower::done(int worker, std::int64_t step) {
  told_[std::size_t(worker - options_.first)].done.push_back(step);
}

void Follower::report(int worker, std::int64_t step, const engine::Totals& share) {
  told_[std::size_t(worker - options_.first)].shares.emplace_back(step, share);
}

void Follower::flush(int worker) {
  const Told& told = told_[std::size_t(worker - options_.first)];
  if (!told.done.empty() || !told.shares.empty() || told.stop) ask(worker, true);
}

void Follower::stop(int worker) {
  told_[std::size_t(worker - options_.first)].stop = true;
}

}  // namespace lockstep::strategies
