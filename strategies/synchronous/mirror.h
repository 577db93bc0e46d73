// SPDX-License-Identifier: MIT
// A replica of a synchronous strategy: its graph, its memory, its executor. The memory that other
// ranks of the host access (gradients, weights, exchange, scratch, norms) is one block, so that
// processes map it once. Optimizer slots, and the float32 masters of 16-bit weights, are the rank's
// own. If the device has its own memory, all of these are there (the exchange in memory that the
// host can access), and checkpoints use copies. Owned by the strategy. The replica's thread uses
// it; a communication thread uses only the executor.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/run/executor.h"
#include "collectives/run/team.h"
#include "collectives/run/transport.h"
#include "engine/train/strategy.h"
#include "strategies/synchronous/loss_scale.h"
#include "strategies/synchronous/plan_timeline.h"
#include "strategies/synchronous/step_deadline.h"
#include "strategies/synchronous/step_design.h"
#include "strategies/synchronous/weight_checks.h"

namespace lockstep::strategies {

// Holds the offsets of the spaces in a rank's block.
struct ArenaLayout {
  std::size_t offset[collectives::kSpaces] = {};
  std::size_t bytes = 0;
  std::size_t space_bytes(collectives::Space space) const;  // whole pages
  // Returns the bytes in host memory if the other spaces are on a device.
  std::size_t host_bytes() const { return space_bytes(collectives::Space::kExchange); }
};
ArenaLayout arena_layout(const engine::Graph& graph, const StepDesign& design);
// Return the bytes that a rank needs besides that block: what updates keep of `owned` owned
// elements, and float32 copies of frozen 16-bit parameters, as in checkpoints.
std::size_t kept_bytes(const engine::UpdateRule& rule, engine::DType dtype, std::size_t owned);
std::size_t widened_bytes(const engine::Graph& graph);

// Owns the ops. It is a base class, so that they outlive the graph that uses them. `host_ops`: for
// the graph's fallbacks (GraphOptions); usually null.
struct OwnOps {
  std::unique_ptr<engine::Ops> own_ops, host_ops = {};
};

class Mirror : private OwnOps, public engine::Replica, private engine::Context {
 public:
  Mirror(int rank, const engine::GraphSpec& spec, OwnOps ops, std::size_t rows, std::uint64_t seed,
         engine::GraphOptions options);

  // Prepares the first step. This rank's block at the team's base, the team, the design and
  // the transport (null on one host) must outlive the mirror.
  void open(const StepDesign& design, const engine::UpdateRule& rule, collectives::Team& team,
            std::unique_ptr<collectives::Transport> transport,
            const collectives::ExecutorOptions& options);

  // Allocates this rank's spaces, by `layout`, on a device with its own memory, and returns their
  // addresses. `shared`: the exchange's address if other processes map it (gpu_spaces.h); they can
  // then open the other spaces. Throws Error(kMemory). Call it before `open`.
  std::array<std::byte*, collectives::kSpaces> take_spaces(const ArenaLayout& layout,
                                                           std::byte* shared);

  // Adds plans to the timeline as spans of communication, and the waits of the computing thread.
  void record(engine::Timeline* timeline) override;

  engine::Ops& kernels() { return *own_ops; }
  collectives::Executor& executor() { return *executor_; }
  std::byte* space(collectives::Space space) const;
  std::byte* space(collectives::Space space, int rank) const;  // another rank of this host
  const std::vector<engine::Range>& owned() const { return owned_; }
  // The host's view of the state, between steps: the weights, and value `kept`
  // (engine/ops/reduce.h: slots, then the master) of a packed owned element. If the device has its
  // own memory these are copies, which `download` makes and `upload` writes back.
  std::byte* host_weights() const;
  std::byte* slot(std::size_t kept, std::size_t packed) const;
  void download();
  void upload();
  engine::DType slot_dtype() const { return engine::computed_in(graph.dtype()); }
  // Calls visit(parameter, part, packed) for all parts that this rank owns: its owned ranges, cut
  // where parameters end. `part`: elements of the arena; `packed`: the packed number of the first
  // one.
  void each_owned(
      const std::function<void(const engine::Parameter&, engine::Range, std::size_t)>& visit) const;
  // Sets the start values of the masters that this rank owns, if there are masters. They are drawn
  // as float32; 16-bit weights are these values, rounded. Writes to the copies, like all start
  // values.
  void set_masters(std::uint64_t seed);
  // Returns a frozen parameter's current weights in float32, if there are masters. The memory is
  // the mirror's; the next call for this parameter overwrites it.
  std::byte* widened(const engine::Parameter& frozen) const;
  std::size_t owned_elements() const { return owned_elements_; }

  struct Progress {
    // Steps of the current work that `next` has returned.
    std::int64_t assigned = 0;
    engine::DataPosition position;  // position in the data after them
    // Buckets of this step whose collectives were started.
    std::size_t started = 0;
    // The kernels are ordered after all updates of the last step.
    bool behind_updates = false;
    bool recording = false;  // calls are being captured
  };
  Progress progress;
  struct Reported {
    std::int64_t step = -1;        // last reported; -1: none since `open`
    engine::LossScaleState scale;  // that step's scale
  };
  Reported reported;
  StepDeadline deadline;
  std::optional<WeightChecks> checks;   // if mirrors are compared; since `open`
  std::optional<LossScale> loss_scale;  // if it is dynamic; since `open`
  std::vector<double> averaged;         // statistics after the last average
  struct Overlapped {                   // work done concurrently, so far
    std::int64_t updates = 0;           // bucket updates before the end of backward
    std::int64_t reductions = 0;        // layer reductions while buckets were in flight
  };
  Overlapped overlapped;

 private:
  std::byte* exchange(int point) override;
  void reduce(int point) override;

  engine::UpdateMemory take_factors(const engine::UpdateRule& rule, const StepDesign& design);

  const StepDesign* design_ = nullptr;
  collectives::Team* team_ = nullptr;
  std::unique_ptr<collectives::Transport> transport_;
  std::vector<engine::Range> owned_;
  std::size_t owned_elements_ = 0;
  std::size_t masters_at_ = 0;  // position among the kept values
  engine::Buffer slots_, widened_;
  engine::Buffer found_;                // engine::UpdateMemory
  std::vector<engine::Buffer> spaces_;  // if the device has its own memory
  struct {
    engine::Buffer weights, slots;
  } copies_;  // copies for the host
  PlanTimeline timeline_;
  std::optional<collectives::Executor> executor_;
};

}  // namespace lockstep::strategies
