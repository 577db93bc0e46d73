// SPDX-License-Identifier: MIT
// A whole job in one process: hosts that are teams, ranks with memory and executors, and a fabric
// between the hosts. One thread drives all ranks by progress() alone, or each rank has its own
// thread.
#pragma once
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/algorithms/request.h"
#include "collectives/run/executor.h"
#include "engine/device/buffer.h"
#include "engine/reference/reference_device.h"
#include "test/collectives/memory_fabric.h"

namespace lockstep::test {

using collectives::DType;
using collectives::Executor;
using collectives::Plan;
using collectives::Range;
using collectives::ReduceOp;
using collectives::Request;
using collectives::Space;
using collectives::StepPlan;

struct JobOptions {
  // The deadline is short, so that a test that hangs fails soon.
  collectives::ExecutorOptions executor{.deadline = std::chrono::milliseconds(20000)};
  collectives::Faults faults;
  // Wraps each rank's end of the fabric.
  std::function<std::unique_ptr<collectives::Transport>(int rank,
                                                        std::unique_ptr<collectives::Transport>)>
      wrap = {};
  // Returns the transports of all ranks, instead of the fabric in memory.
  std::function<std::vector<std::unique_ptr<collectives::Transport>>(int ranks)> connect = {};
  // Returns the kernels of all ranks, instead of plain loops.
  std::function<std::unique_ptr<engine::Ops>()> ops = {};
  engine::UpdateRule rule;
  std::vector<int> updates;  // stages whose ranges the ranks own
  std::size_t norm_blocks = 0;
  std::vector<engine::UpdateSegment> segments = {};
};

class Job {
 public:
  // Allocates `elements` elements of 8 bytes in each space of each rank.
  Job(StepPlan step, std::size_t elements, JobOptions options = {});
  int ranks() const { return int(host_.size()); }
  Executor& executor(int rank) { return executors_[std::size_t(rank)]; }
  collectives::Team& team(int rank);
  collectives::MemoryFabric& fabric() { return fabric_; }
  const StepPlan& step() const { return step_; }
  std::byte* memory(int rank, Space space) const;
  template <class T>
  T* values(int rank, Space space = Space::kGradient) const {
    return reinterpret_cast<T*>(memory(rank, space));
  }
  // Runs `body` for each rank on its own thread. Returns what each rank threw; null for none.
  std::vector<std::exception_ptr> run(const std::function<void(int rank)>& body);
  // Starts these stages and waits for them, on all ranks; rethrows the first error.
  void execute(const std::vector<int>& stages, const engine::StepState* state = nullptr);

 private:
  StepPlan step_;
  std::vector<int> host_;
  std::unique_ptr<engine::Ops> ops_;
  collectives::MemoryFabric fabric_;
  engine::UpdateRule rule_;
  std::vector<std::vector<engine::Buffer>> memory_;  // [rank][space]
  std::vector<engine::Buffer> control_, slots_;
  std::deque<collectives::Team> teams_;  // [host]
  std::vector<std::unique_ptr<collectives::Transport>> transports_;
  std::deque<Executor> executors_;
};

// Runs the plans as strategies do. If that fails, tells the ranks of other hosts why and rethrows.
void run_and_tell(Executor& executor, const std::vector<int>& stages);

// Returns the exception's text; empty for none.
std::string text(const std::exception_ptr& error);

// Returns the host of each rank. Layouts: "one" host, "apart" (one rank per host), "equal"
// (halves), "unequal" (1, 2, 3, ... ranks), and "interleaved" (0 1 0 1).
std::vector<int> hosts(const std::string& layout, int ranks);
inline const std::vector<std::string> kLayouts{"one", "apart", "equal", "unequal", "interleaved"};

}  // namespace lockstep::test
