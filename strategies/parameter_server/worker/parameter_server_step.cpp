// SPDX-License-Identifier: MIT
// Calls of a step: see parameter_server.h.
#include <fmt/format.h>
#include <algorithm>
#include <utility>

#include "strategies/parameter_server/worker/chief.h"
#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/parameter_server/worker/worker_replica.h"

namespace lockstep::strategies {

using engine::Code;
using engine::Error;
using engine::Range;
using engine::Totals;

engine::DType kept_dtype(const engine::Device& device) {
  const engine::DType preferred = device.default_dtype();
  return engine::size_of(preferred) > 2 ? preferred : engine::DType::kFloat32;
}

std::vector<std::string> ParameterServer::fallbacks() const {
  return workers_.empty() ? std::vector<std::string>() : workers_[0]->graph.fallbacks();
}

ParameterServer::Worker& ParameterServer::worker(engine::Replica& replica) const {
  return static_cast<Worker&>(replica);
}

WorkSource& ParameterServer::source() const {
  if (client_) return *client_;
  return chief_->scheduler;
}

void ParameterServer::assign(const engine::WorkSpec& work) {
  work_ = work;
  training_ = work.training;
  for (const auto& worker : workers_) {
    worker->assigned = 0;
    worker->position = work.position;
  }
  if (!training_ || client_) return;
  segment_ = {};
  segment_.work = work;
  segment_.generation = generation_;
  segment_.base = version_ - work.first_step;
}

std::optional<engine::WorkSpec> ParameterServer::assignment() {
  std::optional<Segment> segment;
  for (;;) {
    try {
      segment = client_->next_segment();
      break;
    } catch (const Error& error) {
      if (!client_->lost()) throw;
      attach_again(error);
    }
  }
  if (!segment) return std::nullopt;
  // The chief may have restarted after this process's last step.
  forget_loss();
  segment_ = *segment;
  generation_ = segment->generation;
  return segment->work;
}

// Repeats `attach` after this process was silent for a while (stopped or cut off). Other processes
// have its steps now.
void ParameterServer::attach_again(const Error& error) {
  options_.log.warning("{}; it is there again", error.what());
  client_->attach(job_);
  forget_loss();
}

// Forgets that the chief declared this process lost. The loss has ended the connections to servers,
// even if no step was in progress.
void ParameterServer::forget_loss() {
  std::scoped_lock lock(mutex_);
  if (!std::exchange(from_chief_, false)) return;
  failed_.reset();
  broken_ = true;
}

void ParameterServer::lead() {
  chief_->leading = true;
  chief_->scheduler.lead();
}

void ParameterServer::gave_up(const Error& why) {
  if (chief_) chief_->why_failed = why.what();
}

// Waits for processes that start a moment later. Otherwise a short run would end before they
// attach, and they would wait for a chief that has left.
void ParameterServer::wait_for_others() {
  if (std::exchange(chief_->waited, true)) return;
  const auto most = std::min(options_.heartbeat_timeout, options_.deadline);
  chief_->scheduler.wait_for_all(engine::Clock::now() + most);
  const std::vector<int> missing = chief_->scheduler.missing();
  if (missing.empty()) return;
  options_.log.warning("workers [{}] are not there after {:.1f} s: {}", fmt::join(missing, ", "),
                       std::chrono::duration<double>(most).count(),
                       options_.updates.synchronous ? "steps that need them wait for them"
                                                    : "training begins without them");
}

void ParameterServer::released() {
  chief_->leading = false;
  chief_->scheduler.released();
}

std::optional<engine::Standing> ParameterServer::standing() const {
  return chief_->scheduler.standing();
}

void ParameterServer::run_once(const std::function<void(engine::Replica&)>& body) {
  {
    std::scoped_lock lock(mutex_);
    if (failed_) throw *failed_;
  }
  if (broken_) connect_workers();
  for (const auto& worker : workers_) {
    worker->servers->begin(generation_, client_ ? client_->incarnation() : 0);
    worker->begin();
  }
  try {
    threads_->run([&](int i) { body(*workers_[std::size_t(i)]); },
                  [&](const std::exception& error) {
                    const Error why(Code::kAborted, error.what());
                    exchange_.front()->abandon(why);
                    for (const auto& worker : workers_) worker->servers->fail(why);
                    if (chief_) chief_->scheduler.fail_segment(why);
                  });
  } catch (...) {
    broken_ = true;
    throw;
  }
}

void ParameterServer::run(const std::function<void(engine::Replica&)>& body) {
  if (!std::exchange(training_, false)) return run_once(body);
  if (client_) {
    try {
      run_once(body);
    } catch (const Error& error) {
      if (client_->lost()) return attach_again(error);
      if (!client_->superseded()) throw;
      options_.log.warning("the chief begins anew: {}", error.what());
      client_->leave_segment();
      forget_loss();
    }
    return;
  }
  wait_for_others();
  chief_->scheduler.begin(segment_);
  try {
    do run_once(body);
    while (!chief_->scheduler.wait(options_.deadline));
  } catch (const Error& error) {
    const std::vector<int> missing = chief_->scheduler.missing();
    if (!options_.updates.synchronous || error.code() != Code::kTimeout || missing.empty()) throw;
    throw Error(Code::kPeerLost, fmt::format("workers [{}] are not there: {}",
                                             fmt::join(missing, ", "), error.what()));
  }
  version_ += chief_->scheduler.standing().step - work_.first_step;
}

std::optional<engine::Work> ParameterServer::next(engine::Replica& replica) {
  Worker& w = worker(replica);
  if (work_.training) {
    const std::optional<engine::Work> work = source().next(replica.rank);
    w.ahead += work ? 1 : 0;
    return work;
  }
  if (w.assigned == work_.steps) return std::nullopt;
  engine::Work work = engine::take_batch(work_, work_.first_step + w.assigned++, w.position);
  work.local_batch = engine::share_of(work.local_batch, w.rank - options_.first_worker, local());
  return work;
}

// Ends the last step: waits until the servers have its gradients and reports it.
void ParameterServer::end_step(Worker& w) {
  if (!std::exchange(w.pushed, false)) return;
  w.servers->synchronize();
  source().done(w.rank, *w.began);
}

// Requests all weights at the first batch of a step or an evaluation, and the touched rows at each
// batch. Forward does not announce frozen parameters, so this function waits for them.
void ParameterServer::staged(engine::Replica& replica) {
  Worker& w = worker(replica);
  const bool training = work_.training;
  const std::int64_t step = training ? replica.state.step : 0;
  const std::int64_t version = options_.updates.synchronous && training ? step + segment_.base : 0;
  w.graph.find_touched(replica.state);
  Range frozen;
  if (w.began != step) {
    end_step(w);
    w.ask_anew();
    if (!w.fixed) frozen = {w.graph.trainable(), w.graph.parameters()};
    const Range all{0, w.fixed ? w.graph.trainable() : w.graph.parameters()};
    w.servers->pull(all, version);
    --w.ahead;
    w.began = step;
    w.fixed = true;
  }
  w.servers->pull_rows(w.graph, version);
  w.servers->wait({w.graph.trainable(), w.graph.parameters()});
  w.arrived(frozen);
}

void ParameterServer::before_forward(engine::Replica& replica, Range range) {
  Worker& w = worker(replica);
  w.servers->wait(range);
  w.arrived(range);
}

void ParameterServer::gradient_ready(engine::Replica& replica, Range range) {
  Worker& w = worker(replica);
  const engine::StepState& state = w.Replica::state;
  using Next = ServerWorker::Step::Next;
  const UpdateOptions& updates = options_.updates;
  Next next = updates.prefetch ? Next::kAll : Next::kLast;
  if (updates.synchronous || w.ahead == 0) next = Next::kNone;
  w.push(range, {state.step + segment_.base, state.rate, next});
}

void ParameterServer::finish(engine::Replica& replica) {
  Worker& w = worker(replica);
  w.push_all();
  w.pushed = true;
}

// A vote stops the assignment of steps; steps in progress are completed.
Totals ParameterServer::report(engine::Replica& replica, std::int64_t step, const Totals& mine) {
  Worker& w = worker(replica);
  if (mine.stop > 0) {
    source().stop(w.rank);
  }
  if (mine.save > 0) chief_->scheduler.pause();  // only worker 0 asks for it
  if (options_.updates.synchronous) source().report(w.rank, step, mine);
  Totals last = last_report(w);
  w.last = mine;
  w.reported = step;
  last.stop = last.save = 0;
  return last;
}

// Returns the totals of the last report. On rank 0 of a synchronous job they are those of the
// global batch, else those of the replica's own examples. By then all other workers have pushed
// that step and report it with their next call.
Totals ParameterServer::last_report(Worker& w) {
  Totals last = std::exchange(w.last, {});
  const std::optional<std::int64_t> step = std::exchange(w.reported, {});
  if (!step || w.rank != 0 || !options_.updates.synchronous) return last;
  const Totals whole = chief_->scheduler.totals(*step, options_.deadline);
  last.loss = whole.loss;
  last.correct = whole.correct;
  last.examples = whole.examples;
  return last;
}

Totals ParameterServer::synchronize(engine::Replica& replica) {
  Worker& w = worker(replica);
  end_step(w);
  source().flush(w.rank);
  Totals last = last_report(w);
  last.stop = source().stopped() ? 1 : 0;
  return last;
}

std::vector<double> ParameterServer::gather(engine::Replica& replica, std::span<const double> mine,
                                            std::string_view what) {
  collectives::Bootstrap& exchange = *exchange_[std::size_t(replica.rank - options_.first_worker)];
  const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.size_bytes());
  std::vector<std::string> gathered;
  try {
    gathered = exchange.all_gather(bytes, std::string(what));
  } catch (const Error& error) {
    engine::fail(error.code(), "{}: another replica did not come", what);
  }
  std::vector<double> all;
  for (const std::string& numbers : gathered) {
    const std::size_t before = all.size();
    all.resize(before + numbers.size() / sizeof(double));
    std::copy(numbers.begin(), numbers.end(), reinterpret_cast<char*>(all.data() + before));
  }
  return all;
}

std::optional<engine::Traffic> ParameterServer::traffic(engine::Replica& replica) const {
  const auto& servers = worker(replica).servers;
  return servers ? servers->counts().traffic : engine::Traffic();
}

double ParameterServer::waited_seconds(engine::Replica& replica) const {
  const auto& servers = worker(replica).servers;
  return servers ? servers->waited_seconds() : 0;
}

}  // namespace lockstep::strategies
