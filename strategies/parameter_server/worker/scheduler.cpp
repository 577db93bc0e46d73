// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/scheduler.h"

#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "strategies/parameter_server/cluster/text_difference.h"
#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/server/message_values.h"

namespace lockstep::strategies {

using engine::Clock;
using engine::Code;
using engine::require;

namespace {

constexpr std::chrono::milliseconds kSilenceCheck{50};  // interval of checks for silent members
// Maximum wait of a call of NextSegment.
constexpr std::chrono::milliseconds kLongestSegmentWait{500};
// Deadlines that a step may take if no worker is missing.
constexpr int kSlowest = 10;
constexpr std::size_t kMostHead = std::size_t(1) << 20;

void put(const engine::DataPosition& from, Position* to) {
  to->set_epoch(from.epoch);
  to->set_example(from.example);
}

void put(const engine::Work& work, NextReply& answer) {
  answer.set_work(true);
  answer.set_step(work.step);
  answer.set_epoch(work.epoch);
  answer.set_begin(work.local_batch.begin);
  answer.set_end(work.local_batch.end);
  answer.set_whole(work.global_batch);
  put(work.after, answer.mutable_after());
}

template <class Head>
Head parse(const rpc::Message& request) {
  Head head;
  parse_head(request.head, kMostHead, head);
  return head;
}

rpc::Reply segment_reply(const Segment& segment) {
  const engine::WorkSpec& work = segment.work;
  SegmentReply head;
  head.set_what(SegmentReply::STEPS);
  head.set_segment(segment.number);
  head.set_generation(segment.generation);
  head.set_base(segment.base);
  head.set_examples(work.examples);
  head.set_batch(work.global_batch);
  head.set_first_step(work.first_step);
  head.set_steps(work.steps);
  put(work.position, head.mutable_position());
  head.set_run_steps(work.run_steps);
  head.set_seed(work.seed);
  return reply(head);
}

rpc::Reply segment_reply(SegmentReply::What what) {
  SegmentReply head;
  head.set_what(what);
  return reply(head);
}

// Returns the difference between two jobs; empty if they are equal. A job's text has three parts
// with empty lines between them: settings, cluster, variables. For settings the first differing
// line suffices; the other parts are shown completely.
std::string job_difference(std::string_view mine, std::string_view who, std::string_view theirs) {
  const auto cut = [](std::string_view& job) {
    const std::size_t end = std::min(job.find("\n\n"), job.size());
    const std::string_view part = job.substr(0, end);
    job.remove_prefix(std::min(end + 2, job.size()));
    return part;
  };
  std::string_view left = mine, right = theirs;
  constexpr std::string_view kChief = "the chief";
  const std::string settings =
      first_difference("the processes' jobs differ", {kChief, cut(left)}, {who, cut(right)});
  if (!settings.empty()) return settings;
  const std::string clusters =
      text_difference("the processes' clusters differ", {kChief, cut(left)}, {who, cut(right)});
  if (!clusters.empty()) return clusters;
  return text_difference("the processes' jobs differ", {kChief, left}, {who, right});
}

}  // namespace

Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      assignments_(options.workers, options.aggregate, options.warm_up),
      totals_(options.workers) {
  lose_silent_members();
}

Scheduler::~Scheduler() {
  std::vector<Waiter> waiters;
  {
    std::scoped_lock lock(mutex_);
    waiters = std::exchange(waiters_, {});
  }
  for (Waiter& waiter : waiters) waiter.done(rpc::failed(Code::kAborted, "the chief ends"));
}

void Scheduler::open(const std::string& job, std::uint64_t generation) {
  std::scoped_lock lock(mutex_);
  job_ = job;
  generation_ = generation;
  segment_ = {};
  segment_failed_.reset();
}

void Scheduler::lead() {
  std::scoped_lock lock(mutex_);
  ++fits_;
  leading_ = true;
}

void Scheduler::released() {
  {
    std::scoped_lock lock(mutex_);
    leading_ = false;
    segment_ = {};
  }
  answer_waiters();
}

void Scheduler::fail_segment(const engine::Error& why) {
  {
    std::scoped_lock lock(mutex_);
    segment_failed_ = why;
  }
  changed_.notify_all();
}

void Scheduler::fail(const engine::Error& why) {
  {
    std::scoped_lock lock(mutex_);
    if (!failed_) failed_ = why;
  }
  changed_.notify_all();
  answer_waiters();
}

void Scheduler::wait_for_all(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return failed_.has_value() || absent().empty(); });
}

void Scheduler::wait_for_shutdown(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] {
    return std::ranges::all_of(members_, [&](const auto& entry) {
      const Member& member = entry.second;
      return !member.there || member.over >= fits_;
    });
  });
}

void Scheduler::begin(const Segment& segment) {
  {
    std::scoped_lock lock(mutex_);
    segment_ = segment;
    segment_.number = ++segments_;
    segment_.generation = generation_;
    segment_failed_.reset();
    assignments_.begin(segment.work);
    totals_.begin(segment.work.first_step, segment.work.first_step + segment.work.steps);
    progress_ = Clock::now();
  }
  answer_waiters();
}

std::vector<int> Scheduler::missing() const {
  std::scoped_lock lock(mutex_);
  return absent();
}

// Returns the workers that are not present. Requires the lock.
std::vector<int> Scheduler::absent() const {
  std::vector<bool> there(std::size_t(options_.workers));
  std::fill_n(there.begin(), options_.local, true);
  for (const auto& [first, member] : members_)
    if (member.there) std::fill_n(there.begin() + first, member.count, true);
  std::vector<int> workers;
  for (int worker = 0; worker < options_.workers; ++worker)
    if (!there[std::size_t(worker)]) workers.push_back(worker);
  return workers;
}

int Scheduler::lost() const {
  std::scoped_lock lock(mutex_);
  return lost_;
}

engine::Standing Scheduler::standing() const {
  std::scoped_lock lock(mutex_);
  return assignments_.standing();
}

bool Scheduler::wait(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  wait_until(lock, deadline, [&] {
    bool over = assignments_.finished();
    for (int worker = 0; worker < options_.local; ++worker)
      over |= assignments_.has_work_for(worker);
    return over;
  });
  return assignments_.finished();
}

engine::Totals Scheduler::totals(std::int64_t step, std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  wait_until(lock, deadline, [&] {
    return totals_.reported(step) >= options_.aggregate || assignments_.finished();
  });
  return totals_.take(step);
}

// Requires the lock.
void Scheduler::throw_if_failed() const {
  if (failed_) throw *failed_;
  if (segment_failed_) throw *segment_failed_;
}

// Waits until `over()` is true; throws the errors of `wait`. Requires the lock.
void Scheduler::wait_until(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds deadline,
                           const std::function<bool()>& over) {
  for (;;) {
    throw_if_failed();
    if (over()) return;
    changed_.wait_for(lock, kSilenceCheck);
    if (Clock::now() < progress_ + deadline) continue;
    if (const std::vector<int> workers = absent(); !workers.empty())
      engine::fail(Code::kPeerLost, "workers [{}] are not there, and nothing was done for {} ms",
                   fmt::join(workers, ", "), deadline.count());
    if (Clock::now() >= progress_ + kSlowest * deadline)
      engine::fail(Code::kTimeout, "all workers are there, and none has finished a step for {} ms",
                   (kSlowest * deadline).count());
  }
}

std::optional<engine::Work> Scheduler::next(int worker) {
  std::unique_lock lock(mutex_);
  for (;;) {
    throw_if_failed();
    if (segment_.number == 0) return std::nullopt;
    if (!assignments_.warming_up(worker)) return assignments_.next(worker);
    changed_.wait_for(lock, kSilenceCheck);
  }
}

void Scheduler::done(int worker, std::int64_t step) {
  {
    std::scoped_lock lock(mutex_);
    assignments_.done(worker, step);
    progress_ = Clock::now();
  }
  changed_.notify_all();
}

void Scheduler::report(int worker, std::int64_t step, const engine::Totals& share) {
  {
    std::scoped_lock lock(mutex_);
    totals_.add(worker, step, share);
  }
  changed_.notify_all();
}

void Scheduler::pause() {
  {
    std::scoped_lock lock(mutex_);
    assignments_.pause();
  }
  changed_.notify_all();
}

void Scheduler::stop(int) {
  {
    std::scoped_lock lock(mutex_);
    assignments_.stop();
  }
  changed_.notify_all();
}

bool Scheduler::stopped() const {
  std::scoped_lock lock(mutex_);
  return assignments_.stopped();
}

// Throws if the process is not, or no longer, present. Requires the lock.
Scheduler::Member& Scheduler::member(int worker, std::uint64_t incarnation) {
  const auto after = members_.upper_bound(worker);
  Member* found = after == members_.begin() ? nullptr : &std::prev(after)->second;
  if (failed_) {
    if (found != nullptr) found->over = fits_;
    changed_.notify_all();
    engine::fail(Code::kAborted, "the chief ended the job: {}", failed_->what());
  }
  if (found == nullptr || worker >= found->first + found->count ||
      found->incarnation != incarnation)
    engine::fail(Code::kAborted, "another process has the place of worker {}", worker);
  if (!found->there) {
    engine::fail(Code::kPeerLost,
                 "the chief has taken worker {} for lost, which was silent for {} ms", worker,
                 options_.heartbeat_timeout.count());
  }
  found->last_call = Clock::now();
  return *found;
}

// Returns nothing if the call has to wait. Requires the lock.
std::optional<rpc::Reply> Scheduler::answer_to(const Waiter& waiter) {
  try {
    Member& who = member(waiter.first, waiter.incarnation);
    if (waiter.fit < fits_ || (waiter.fit == fits_ && !leading_)) {
      who.over = std::max(who.over, waiter.fit);
      changed_.notify_all();
      return segment_reply(SegmentReply::OVER);
    }
    if (waiter.fit == fits_ && segment_.number != 0) {
      for (int worker = who.first; worker < who.first + who.count; ++worker)
        if (assignments_.has_work_for(worker)) return segment_reply(segment_);
    }
  } catch (const engine::Error& error) {
    return rpc::failed(error);
  }
  if (Clock::now() < waiter.since + kLongestSegmentWait) return std::nullopt;
  return segment_reply(SegmentReply::WAIT);
}

void Scheduler::answer_waiters() {
  std::vector<std::pair<rpc::Done, rpc::Reply>> answers;
  {
    std::scoped_lock lock(mutex_);
    std::erase_if(waiters_, [&](Waiter& waiter) {
      auto reply = answer_to(waiter);
      if (reply) answers.emplace_back(std::move(waiter.done), std::move(*reply));
      return reply.has_value();
    });
  }
  for (auto& [done, reply] : answers) done(std::move(reply));
}

// Gives the member's steps to other workers. Requires the lock.
void Scheduler::lose(Member& member) {
  member.there = false;
  ++lost_;
  for (int worker = member.first; worker < member.first + member.count; ++worker)
    assignments_.lost(worker);
}

// Runs every kSilenceCheck. If this process itself was stopped for a while, that time does not
// count as silence of other processes.
void Scheduler::lose_silent_members() {
  {
    std::scoped_lock lock(mutex_);
    const auto now = Clock::now();
    const auto since_last = now - std::exchange(checked_, now);
    for (auto& [first, member] : members_) {
      if (since_last > options_.heartbeat_timeout / 4) member.last_call += since_last;
      if (!member.there || Clock::now() < member.last_call + options_.heartbeat_timeout) continue;
      lose(member);
      options_.log.warning("worker {} has been silent for {} ms: its steps go to others", first,
                           options_.heartbeat_timeout.count());
      changed_.notify_all();
    }
  }
  answer_waiters();
  work_.add(Clock::now() + kSilenceCheck, [this] { lose_silent_members(); });
}

rpc::Reply Scheduler::attach(const rpc::Message& request) {
  const auto head = parse<AttachRequest>(request);
  std::scoped_lock lock(mutex_);
  if (failed_) engine::fail(Code::kAborted, "the chief ended the job: {}", failed_->what());
  if (job_.empty()) engine::fail(Code::kUnavailable, "the chief has not opened its job yet");
  const std::int64_t begin = head.worker(), end = begin + head.workers();
  require(begin >= options_.local && begin < end && end <= options_.workers,
          "workers {} to {} are none of the {} of this job that follow the chief", begin, end - 1,
          options_.workers - options_.local);
  const int first = int(begin), count = int(end - begin);
  for (const auto& [other, member] : members_) {
    require(other == first ? member.count == count
                           : first + count <= other || other + member.count <= first,
            "workers {} to {} are not those of one process: another has {} to {}", first,
            first + count - 1, other, other + member.count - 1);
  }
  const std::string difference = job_difference(job_, fmt::format("worker {}", first), head.job());
  require(difference.empty(), "{}", difference);
  Member& member = members_[first];
  if (member.there) lose(member);
  member = {first, count, ++incarnations_, Clock::now(), true, 0, {}};
  progress_ = Clock::now();
  changed_.notify_all();
  AttachReply answer;
  answer.set_incarnation(member.incarnation);
  return reply(answer);
}

rpc::Reply Scheduler::next(const rpc::Message& request) {
  const auto head = parse<NextRequest>(request);
  const int worker = int(head.worker());
  std::scoped_lock lock(mutex_);
  Member::Answer& last = member(worker, head.incarnation()).last[worker];
  if (head.call() == last.call) return last.reply;
  NextReply answer;
  if (segment_.number != 0 && segment_.number == head.segment()) {
    for (const std::int64_t step : head.done()) assignments_.done(worker, step);
    for (const Share& share : head.shares())
      totals_.add(worker, share.step(), {share.loss(), share.correct(), share.examples()});
    if (head.done_size() > 0) progress_ = Clock::now();
    if (head.stop()) assignments_.stop();
    if (!head.only_done())
      if (const auto work = assignments_.next(worker)) put(*work, answer);
  }
  answer.set_stopped(assignments_.stopped());
  last = {head.call(), reply(answer)};
  changed_.notify_all();
  return last.reply;
}

rpc::Reply Scheduler::heartbeat(const rpc::Message& request) {
  const auto head = parse<HeartbeatRequest>(request);
  std::scoped_lock lock(mutex_);
  member(int(head.worker()), head.incarnation());
  HeartbeatReply answer;
  answer.set_generation(generation_);
  return reply(answer);
}

void Scheduler::call(std::string_view method, rpc::Message request,
                     std::shared_ptr<const rpc::Caller>, rpc::Done done) {
  rpc::answering(done, [&] {
    if (method == "NextSegment") {
      const auto head = parse<SegmentRequest>(request);
      {
        std::scoped_lock lock(mutex_);
        waiters_.push_back(
            {int(head.worker()), head.incarnation(), head.fit(), Clock::now(), done});
      }
      return answer_waiters();
    }
    if (method == "Attach") return done(attach(request));
    if (method == "Next") return done(next(request));
    if (method == "Heartbeat") return done(heartbeat(request));
    require(method != "Status", "this is the chief of a job; its servers say how they are");
    engine::fail(Code::kInvalid, "a chief has no method {}", method);
  });
}

}  // namespace lockstep::strategies
