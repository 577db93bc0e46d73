// SPDX-License-Identifier: MIT
#include "test/collectives/job.h"

#include <algorithm>
#include <thread>

namespace lockstep::test {

Job::Job(StepPlan step, std::size_t elements, JobOptions options)
    : step_(std::move(step)),
      host_(step_.at(0).plan.host),
      ops_(options.ops ? options.ops() : engine::reference_ops(DType::kFloat64)),
      fabric_(int(host_.size()), options.faults),
      rule_(options.rule) {
  const int most = *std::max_element(host_.begin(), host_.end());
  for (int host = 0; host <= most; ++host) {
    std::vector<int> local;
    for (int rank = 0; rank < ranks(); ++rank)
      if (host_[std::size_t(rank)] == host) local.push_back(rank);
    control_.emplace_back(collectives::Team::control_bytes(local.size(), step_.size()));
    teams_.emplace_back(local, step_.size(), control_.back().data());
  }
  if (options.connect) transports_ = options.connect(ranks());
  for (int rank = 0; rank < ranks(); ++rank) {
    auto& spaces = memory_.emplace_back();
    for (int space = 0; space < collectives::kSpaces; ++space) {
      spaces.emplace_back(std::max<std::size_t>(elements, 1) * 8);
      team(rank).set_base(rank, Space(space), spaces.back().data());
    }
    collectives::OwnedState owned;
    owned.rule = &rule_;
    owned.norm_blocks = options.norm_blocks;
    owned.segments = options.segments;
    for (const int stage : options.updates)
      for (const Range range : collectives::owned(step_[std::size_t(stage)].plan, rank))
        owned.ranges.push_back(range);
    slots_.emplace_back(owned.elements() * 8 * rule_.slots());
    owned.slots = slots_.back().data();
    if (!options.connect) transports_.push_back(fabric_.connect(rank));
    auto& transport = transports_[std::size_t(rank)];
    if (options.wrap) transport = options.wrap(rank, std::move(transport));
    executors_.emplace_back(rank, team(rank), transport.get(), *ops_, std::move(owned),
                            options.executor);
    executors_.back().open(step_);
  }
}

collectives::Team& Job::team(int rank) {
  return teams_[std::size_t(host_[std::size_t(rank)])];
}

std::byte* Job::memory(int rank, Space space) const {
  return memory_[std::size_t(rank)][std::size_t(space)].data();
}

std::vector<std::exception_ptr> Job::run(const std::function<void(int rank)>& body) {
  std::vector<std::exception_ptr> errors{std::size_t(ranks())};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (...) {
        errors[std::size_t(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void Job::execute(const std::vector<int>& stages, const engine::StepState* state) {
  const auto errors = run([&](int rank) {
    for (const int stage : stages) executor(rank).start(stage, state);
    for (const int stage : stages) executor(rank).wait(stage);
  });
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

void run_and_tell(Executor& executor, const std::vector<int>& stages) {
  try {
    for (const int stage : stages) executor.start(stage, nullptr);
    for (const int stage : stages) executor.wait(stage);
  } catch (const std::exception&) {
    executor.tell_peers();
    throw;
  }
}

std::string text(const std::exception_ptr& error) {
  if (!error) return {};
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::vector<int> hosts(const std::string& layout, int ranks) {
  std::vector<int> host;
  for (int rank = 0, next = 0, left = 0; rank < ranks; ++rank) {
    if (layout == "one") host.push_back(0);
    if (layout == "apart") host.push_back(rank);
    if (layout == "equal") host.push_back(2 * rank / ranks);
    if (layout == "interleaved") host.push_back(rank % 2);
    if (layout != "unequal") continue;
    if (left == 0) left = ++next;
    host.push_back(next - 1), --left;
  }
  return host;
}

}  // namespace lockstep::test
