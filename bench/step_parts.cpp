// SPDX-License-Identifier: MIT
#include "bench/step_parts.h"

#include <fmt/core.h>

#include <algorithm>
#include <ctime>

#include "engine/base/median.h"
#include "engine/train/staging.h"

namespace lockstep::bench {
namespace {

using engine::seconds_since;

// Returns the processor time of all threads of this process, in seconds.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) / 1e9;
}

}  // namespace

void Parts::add(const std::string& part, double seconds) {
  if (now_.find(part) == now_.end()) order_.push_back(part);
  now_[part] += seconds;
}

void Parts::layer(const std::string& name, Pass pass, engine::Clock::time_point begin,
                  engine::Clock::time_point end, engine::Tensor) {
  add(fmt::format("{:8} {}", pass == Pass::kForward ? "forward" : "backward", name),
      std::chrono::duration<double>(end - begin).count());
}

void Parts::end_step(bool keep, double whole) {
  for (auto& [part, seconds] : now_) {
    if (keep) samples_[part].push_back(seconds);
    whole -= seconds;
    seconds = 0;
  }
  if (keep) rest_.push_back(whole);
}

double Parts::of(const std::string& part) const {
  return engine::median(samples_.at(part));
}

double Parts::rest() const {
  return engine::median(rest_);
}

void ReadyTimes::add(engine::Range range, double seconds, bool keep) {
  if (next_ == ends_.size()) ends_.push_back(range.end), samples_.emplace_back();
  if (keep) samples_[next_].push_back(seconds);
  ++next_;
}

std::vector<ReadyUnit> ReadyTimes::units(std::size_t width) const {
  std::vector<ReadyUnit> units;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    units.push_back({engine::median(samples_[i]), (ends_[i] - begin) * width});
    begin = ends_[i];
  }
  return units;
}

std::vector<ReadyUnit> ReadyTimes::buckets(const std::vector<engine::Range>& cut,
                                           std::size_t width) const {
  std::vector<ReadyUnit> units;
  for (const engine::Range& bucket : cut) {
    const auto at = std::lower_bound(ends_.begin(), ends_.end(), bucket.end) - ends_.begin();
    units.push_back({engine::median(samples_[std::size_t(at)]), bucket.size() * width});
  }
  return units;
}

StepTimes take_steps(engine::Strategy& strategy, const engine::Dataset& data, std::size_t batch,
                     double rate, int first, int warm_up, int steps) {
  const engine::Membership me = strategy.membership();
  strategy.assign({data.size(), batch, first, warm_up + steps, {}, true});
  StepTimes times;
  strategy.run([&](engine::Replica& r) {
    const bool mine = r.rank == me.rank;
    engine::Pipeline pipeline(data, {.shuffle = false, .in_place = true});
    engine::Ops& ops = *r.context->ops;
    double exposed = 0;  // inside the strategy's calls
    bool keep = false;
    engine::Clock::time_point started;
    auto timed = [&exposed](auto&& call) {
      const auto begin = engine::Clock::now();
      call();
      exposed += seconds_since(begin);
    };
    const engine::Graph::Hook before = [&](engine::Range x) {
      timed([&] {
        strategy.before_forward(r, x);
        ops.synchronize();
      });
    };
    const engine::Graph::Hook ready = [&](engine::Range x) {
      if (mine) times.ready.add(x, seconds_since(started) - exposed, keep);
      timed([&] { strategy.gradient_ready(r, x); });
    };
    if (mine) r.graph.observe(&times.parts);
    while (const auto work = strategy.next(r)) {
      exposed = 0;
      keep = work->step >= first + warm_up;
      if (mine) times.ready.begin_step();
      started = engine::Clock::now();
      const double processor_begin = processor_seconds();
      pipeline.request(work->epoch, work->local_batch);
      engine::stage(r, pipeline.take(), work->step, work->global_batch, rate);
      strategy.staged(r);
      ops.synchronize();
      const double input = seconds_since(started);
      r.graph.forward(*r.context, before);
      const auto loss_begin = engine::Clock::now();
      r.graph.evaluate_loss(*r.context, true);
      const double loss = ops.batch_sum(r.context->state, r.graph.losses());
      const double loss_seconds = seconds_since(loss_begin);
      r.graph.backward(*r.context, false, ready);
      timed([&] { strategy.finish(r); });
      const double seconds = seconds_since(started);
      if (!mine) continue;
      times.parts.add("input", input);
      times.parts.add("loss", loss_seconds);
      times.parts.add("communication and update, exposed", exposed);
      times.parts.end_step(keep, seconds);
      times.losses.push_back(loss / double(std::max<std::int64_t>(1, r.state.examples)));
      if (!keep) continue;
      times.computing.push_back(seconds - exposed);
      times.whole.push_back(seconds);
      times.processor.push_back(processor_seconds() - processor_begin);
    }
    r.graph.observe(nullptr);
  });
  return times;
}

}  // namespace lockstep::bench
