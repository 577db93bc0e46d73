// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/coordinator.h"

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

constexpr std::chrono::milliseconds kBetweenSweeps{50};
constexpr std::chrono::milliseconds kLongestOrder{500};
constexpr int kSlowest = 10;  // deadlines that a step may take where all workers are there
constexpr std::size_t kMostHead = std::size_t(1) << 20;

void put(const engine::DataPosition& from, Position* to) {
  to->set_epoch(from.epoch);
  to->set_example(from.example);
}

rpc::Reply order_reply(const Segment& segment) {
  const engine::WorkSpec& work = segment.work;
  OrderReply reply_head;
  reply_head.set_what(OrderReply::STEPS);
  reply_head.set_segment(segment.number);
  reply_head.set_generation(segment.generation);
  reply_head.set_base(segment.base);
  reply_head.set_examples(work.examples);
  reply_head.set_batch(work.global_batch);
  reply_head.set_first_step(work.first_step);
  reply_head.set_steps(work.steps);
  put(work.position, reply_head.mutable_position());
  reply_head.set_run_steps(work.run_steps);
  reply_head.set_seed(work.seed);
  return reply(reply_head);
}

rpc::Reply order_reply(OrderReply::What what) {
  OrderReply head;
  head.set_what(what);
  return reply(head);
}

// A job is its settings, its cluster and its variables, an empty line after each of the first two.
// Of settings the one that differs says all; of the others both are shown whole.
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

Coordinator::Coordinator(const CoordinatorOptions& options)
    : options_(options),
      dealer_(options.workers, options.aggregate, options.warm_up),
      totals_(options.workers) {
  sweep();
}

Coordinator::~Coordinator() {
  std::vector<Waiter> waiters;
  {
    std::scoped_lock lock(mutex_);
    waiters = std::exchange(waiters_, {});
  }
  for (Waiter& waiter : waiters) waiter.done(rpc::failed(Code::kAborted, "the chief ends"));
}

void Coordinator::open(const std::string& job, std::uint64_t generation) {
  std::scoped_lock lock(mutex_);
  job_ = job;
  generation_ = generation;
  segment_ = {};
  segment_failed_.reset();
}

void Coordinator::lead() {
  std::scoped_lock lock(mutex_);
  ++fits_;
  leading_ = true;
}

void Coordinator::released() {
  {
    std::scoped_lock lock(mutex_);
    leading_ = false;
    segment_ = {};
  }
  answer_waiters();
}

void Coordinator::fail_segment(const engine::Error& why) {
  {
    std::scoped_lock lock(mutex_);
    segment_failed_ = why;
  }
  changed_.notify_all();
}

void Coordinator::fail(const engine::Error& why) {
  {
    std::scoped_lock lock(mutex_);
    if (!failed_) failed_ = why;
  }
  changed_.notify_all();
  answer_waiters();
}

void Coordinator::wait_for_all(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return failed_.has_value() || absent().empty(); });
}

void Coordinator::wait_for_farewells(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] {
    return std::all_of(members_.begin(), members_.end(), [&](const auto& entry) {
      const Member& member = entry.second;
      return !member.there || member.over >= fits_;
    });
  });
}

void Coordinator::begin(const Segment& segment) {
  {
    std::scoped_lock lock(mutex_);
    segment_ = segment;
    segment_.number = ++segments_;
    segment_.generation = generation_;
    segment_failed_.reset();
    dealer_.begin(segment.work);
    totals_.begin(segment.work.first_step, segment.work.first_step + segment.work.steps);
    progress_ = Clock::now();
  }
  answer_waiters();
}

bool Coordinator::is_missing(int worker) const {
  if (worker < options_.local) return false;
  const auto after = members_.upper_bound(worker);
  if (after == members_.begin()) return true;
  const Member& member = std::prev(after)->second;
  return !member.there || worker >= member.first + member.count;
}

std::vector<int> Coordinator::missing() const {
  std::scoped_lock lock(mutex_);
  return absent();
}

// The lock is held.
std::vector<int> Coordinator::absent() const {
  std::vector<int> workers;
  for (int worker = 0; worker < options_.workers; ++worker)
    if (is_missing(worker)) workers.push_back(worker);
  return workers;
}

int Coordinator::lost() const {
  std::scoped_lock lock(mutex_);
  return lost_;
}

bool Coordinator::wait(std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  wait_until(lock, deadline, [&] {
    bool own = false;  // work for the chief's replicas
    for (int worker = 0; worker < options_.local; ++worker) own |= dealer_.waiting_for(worker);
    return own || dealer_.finished();
  });
  return dealer_.finished();
}

engine::Totals Coordinator::totals(std::int64_t step, std::chrono::milliseconds deadline) {
  std::unique_lock lock(mutex_);
  wait_until(lock, deadline,
             [&] { return totals_.reported(step) >= options_.aggregate || dealer_.finished(); });
  return totals_.take(step);
}

void Coordinator::wait_until(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds deadline,
                             const std::function<bool()>& over) {
  for (;;) {
    if (failed_) throw *failed_;
    if (segment_failed_) throw *segment_failed_;
    if (over()) return;
    changed_.wait_for(lock, kBetweenSweeps);
    if (Clock::now() < progress_ + deadline) continue;
    if (const std::vector<int> workers = absent(); !workers.empty())
      engine::fail(Code::kPeerLost, "workers [{}] are not there, and nothing was done for {} ms",
                   fmt::join(workers, ", "), deadline.count());
    if (Clock::now() >= progress_ + kSlowest * deadline)
      engine::fail(Code::kTimeout, "all workers are there, and none has finished a step for {} ms",
                   (kSlowest * deadline).count());
  }
}

std::optional<engine::Work> Coordinator::next(int worker) {
  std::unique_lock lock(mutex_);
  while (!failed_ && !segment_failed_ && segment_.number != 0 && dealer_.warming_up(worker))
    changed_.wait_for(lock, kBetweenSweeps);
  if (failed_) throw *failed_;
  if (segment_failed_) throw *segment_failed_;
  if (segment_.number == 0) return std::nullopt;
  return dealer_.next(worker);
}

void Coordinator::done(int worker, std::int64_t step) {
  {
    std::scoped_lock lock(mutex_);
    dealer_.done(worker, step);
    progress_ = Clock::now();
  }
  changed_.notify_all();
}

void Coordinator::report(int worker, std::int64_t step, const engine::Totals& share) {
  {
    std::scoped_lock lock(mutex_);
    totals_.add(worker, step, share);
  }
  changed_.notify_all();
}

void Coordinator::pause() {
  dealer_.pause();
  changed_.notify_all();
}

void Coordinator::stop(int) {
  dealer_.stop();
  changed_.notify_all();
}

// The lock is held.
Coordinator::Member& Coordinator::member(int worker, std::uint64_t incarnation) {
  const auto after = members_.upper_bound(worker);
  Member* found = after == members_.begin() ? nullptr : &std::prev(after)->second;
  if (failed_) {
    if (found != nullptr) found->over = fits_;  // it hears of the end
    changed_.notify_all();
    engine::fail(Code::kAborted, "the chief ended the job: {}", failed_->what());
  }
  if (found == nullptr || worker >= found->first + found->count ||
      found->incarnation != incarnation)
    engine::fail(Code::kAborted, "another process has the place of worker {}", worker);
  if (!found->there) {
    engine::fail(Code::kPeerLost,
                 "the chief has taken worker {} for lost, which was silent for {} ms", worker,
                 options_.patience.count());
  }
  found->heard = Clock::now();
  return *found;
}

// The lock is held. Nothing: it is to wait.
std::optional<rpc::Reply> Coordinator::answer_to(const Waiter& waiter) {
  try {
    Member& who = member(waiter.first, waiter.incarnation);
    if (waiter.fit < fits_ || (waiter.fit == fits_ && !leading_)) {
      who.over = std::max(who.over, waiter.fit);
      changed_.notify_all();
      return order_reply(OrderReply::OVER);
    }
    if (waiter.fit == fits_ && segment_.number != 0) {
      for (int worker = who.first; worker < who.first + who.count; ++worker)
        if (dealer_.waiting_for(worker)) return order_reply(segment_);
    }
  } catch (const engine::Error& error) {
    return rpc::failed(error);
  }
  if (Clock::now() < waiter.since + kLongestOrder) return std::nullopt;
  return order_reply(OrderReply::WAIT);
}

void Coordinator::answer_waiters() {
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

// Who has been silent for too long is lost; who waits for an order and has none is told so. Where
// this process itself was stopped for a while, nobody else's silence counts.
void Coordinator::sweep() {
  {
    std::scoped_lock lock(mutex_);
    const auto now = Clock::now();
    const auto stopped = now - std::exchange(swept_, now);
    for (auto& [first, member] : members_)
      if (stopped > options_.patience / 4) member.heard += stopped;
    for (auto& [first, member] : members_) {
      if (!member.there || Clock::now() < member.heard + options_.patience) continue;
      member.there = false;
      ++lost_;
      for (int worker = first; worker < first + member.count; ++worker) dealer_.lost(worker);
      options_.log.warning("worker {} has been silent for {} ms: its steps go to others", first,
                           options_.patience.count());
      changed_.notify_all();
    }
  }
  answer_waiters();
  work_.add(Clock::now() + kBetweenSweeps, [this] { sweep(); });
}

// One call of a follower.
class Coordinator::Calls {
 public:
  Calls(Coordinator& coordinator, const rpc::Message& request)
      : c_(coordinator), request_(request) {}

  rpc::Reply attach() {
    const auto head = read<AttachRequest>();
    std::scoped_lock lock(c_.mutex_);
    if (c_.failed_) engine::fail(Code::kAborted, "the chief ended the job: {}", c_.failed_->what());
    if (c_.job_.empty()) engine::fail(Code::kUnavailable, "the chief has not opened its job yet");
    const std::int64_t begin = head.worker(), end = begin + head.workers();
    require(begin >= c_.options_.local && begin < end && end <= c_.options_.workers,
            "workers {} to {} are none of the {} of this job that follow the chief", begin, end - 1,
            c_.options_.workers - c_.options_.local);
    const int first = int(begin), count = int(end - begin);
    for (const auto& [other, member] : c_.members_) {
      require(other == first ? member.count == count
                             : first + count <= other || other + member.count <= first,
              "workers {} to {} are not those of one process: another has {} to {}", first,
              first + count - 1, other, other + member.count - 1);
    }
    const std::string who = fmt::format("worker {}", first);
    const std::string difference = job_difference(c_.job_, who, head.job());
    require(difference.empty(), "{}", difference);
    Member& member = c_.members_[first];
    if (member.there) {
      ++c_.lost_;
      for (int worker = first; worker < first + count; ++worker) c_.dealer_.lost(worker);
    }
    member = {first, count, ++c_.incarnations_, Clock::now(), true, 0, {}};
    c_.progress_ = Clock::now();
    c_.changed_.notify_all();
    AttachReply answer;
    answer.set_incarnation(member.incarnation);
    return reply(answer);
  }

  rpc::Reply next() {
    const auto head = read<NextRequest>();
    const int worker = int(head.worker());
    rpc::Reply result;
    {
      std::scoped_lock lock(c_.mutex_);
      Member::Answer& last = c_.member(worker, head.incarnation()).last[worker];
      if (head.call() == last.call) return last.reply;
      NextReply answer;
      if (c_.segment_.number != 0 && c_.segment_.number == head.segment()) {
        for (const std::int64_t step : head.done()) c_.dealer_.done(worker, step);
        for (const Share& share : head.shares())
          c_.totals_.add(worker, share.step(), {share.loss(), share.correct(), share.examples()});
        if (head.done_size() > 0) c_.progress_ = Clock::now();
        if (head.stop()) c_.dealer_.stop();
        if (!head.only_done())
          if (const auto work = c_.dealer_.next(worker)) put(*work, answer);
      }
      answer.set_stopped(c_.dealer_.stopped());
      result = reply(answer);
      last = {head.call(), result};
    }
    c_.changed_.notify_all();
    return result;
  }

  rpc::Reply beat() {
    const auto head = read<BeatRequest>();
    std::scoped_lock lock(c_.mutex_);
    c_.member(int(head.worker()), head.incarnation());
    BeatReply answer;
    answer.set_generation(c_.generation_);
    return reply(answer);
  }

  Waiter order() {
    const auto head = read<OrderRequest>();
    return {int(head.worker()), head.incarnation(), head.fit(), Clock::now(), {}};
  }

 private:
  template <class Head>
  Head read() const {
    Head head;
    parse_head(request_.head, kMostHead, head);
    return head;
  }
  static void put(const engine::Work& work, NextReply& answer) {
    answer.set_work(true);
    answer.set_step(work.step);
    answer.set_epoch(work.epoch);
    answer.set_begin(work.local_batch.begin);
    answer.set_end(work.local_batch.end);
    answer.set_whole(work.global_batch);
    strategies::put(work.after, answer.mutable_after());
  }
  Coordinator& c_;
  const rpc::Message& request_;
};

void Coordinator::call(std::string_view method, rpc::Message request,
                       std::shared_ptr<const rpc::Caller>, rpc::Done done) {
  rpc::answering(done, [&] {
    Calls calls(*this, request);
    if (method == "Order") {
      Waiter waiter = calls.order();
      waiter.done = done;
      {
        std::scoped_lock lock(mutex_);
        waiters_.push_back(std::move(waiter));
      }
      return answer_waiters();
    }
    if (method == "Attach") return done(calls.attach());
    if (method == "Next") return done(calls.next());
    if (method == "Beat") return done(calls.beat());
    require(method != "Status", "this is the chief of a job; its servers say how they are");
    engine::fail(Code::kInvalid, "a chief has no method {}", method);
  });
}

}  // namespace lockstep::strategies
