// SPDX-License-Identifier: MIT
// One replica of a synchronous strategy: its graph, its memory, its executor. The memory that other
// ranks of the host read and write (gradients, weights, exchange, scratch, norms) is one block, so
// that processes map it at once; optimizer slots, and the float32 masters of weights of 16 bits,
// are the rank's own. On a device with memory of its own all of these lie there (the
// exchange where the host can reach it), and checkpoints go through copies. Owned by the strategy;
// the replica's thread uses it, a communication thread beside it only the executor.
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

// Where the spaces lie in a rank's block.
struct ArenaLayout {
  std::size_t offset[collectives::kSpaces] = {};
  std::size_t bytes = 0;
  std::size_t space_bytes(collectives::Space space) const;  // whole pages
  // Of what lies in the host's memory, where the others lie on a device.
  std::size_t host_bytes() const { return space_bytes(collectives::Space::kExchange); }
};
ArenaLayout arena_layout(const engine::Graph& graph, const StepDesign& design);
// What a rank keeps beside that block: of so many owned elements what updates keep, and room for
// frozen parameters of 16 bits in float32, as checkpoints hold them.
std::size_t kept_bytes(const engine::UpdateRule& rule, engine::DType dtype, std::size_t owned);
std::size_t widened_bytes(const engine::Graph& graph);

// A base, so that the ops outlive the graph that uses them. `host_ops`: where the graph's fallbacks
// run (GraphOptions); mostly null.
struct OwnOps {
  std::unique_ptr<engine::Ops> own_ops, host_ops = {};
};

class Mirror : private OwnOps, public engine::Replica, private engine::Context {
 public:
  Mirror(int rank, const engine::GraphSpec& spec, OwnOps ops, std::size_t rows, std::uint64_t seed,
         engine::GraphOptions options);

  // Before the first step. The block at the team's base of this rank, the team, the design and the
  // transport (null on one host) outlive the mirror.
  void open(const StepDesign& design, const engine::UpdateRule& rule, collectives::Team& team,
            std::unique_ptr<collectives::Transport> transport,
            const collectives::ExecutorOptions& options);

  // Of a device whose memory is not the host's: this rank's spaces, as in `layout`, taken from the
  // device; where each lies. The exchange lies at `shared` where other processes map it
  // (gpu_spaces.h), which then may open the others. Throws Error(kMemory). Before `open`.
  std::array<std::byte*, collectives::kSpaces> take_spaces(const ArenaLayout& layout,
                                                           std::byte* shared);

  // Plans as spans of communication, from start to end; what the computing thread waited for.
  void record(engine::Timeline* timeline) override;

  engine::Ops& kernels() { return *own_ops; }
  collectives::Executor& executor() { return *executor_; }
  std::byte* space(collectives::Space space) const;
  std::byte* space(collectives::Space space, int rank) const;  // of another rank of this host
  const std::vector<engine::Range>& owned() const { return owned_; }
  // What the host reads and writes of them: the weights, and value `kept` (engine/ops/reduce.h:
  // slots, then the master) of a packed owned element. Where the device has memory of its own, in
  // copies, which `download` makes, and `upload` puts back. Between steps.
  std::byte* host_weights() const;
  std::byte* slot(std::size_t kept, std::size_t packed) const;
  void download();
  void upload();
  engine::DType slot_dtype() const { return engine::computed_in(graph.dtype()); }
  // Calls visit(parameter, its part that this rank owns, as elements of the arena, and the packed
  // number of the first of these) for all parts: every owned range, cut where parameters end.
  void each_owned(
      const std::function<void(const engine::Parameter&, engine::Range, std::size_t)>& visit) const;
  // Where there are masters: those that this rank owns, as they start. They are drawn as float32,
  // which weights, drawn in 16 bits, are rounded from. In the copies, as all start values.
  void set_masters(std::uint64_t seed);
  // Where there are masters: a frozen parameter's weights of now in float32. The memory is the
  // mirror's; the next call for this parameter writes it again.
  std::byte* widened(const engine::Parameter& frozen) const;
  std::size_t owned_elements() const { return owned_elements_; }

  struct Progress {
    std::int64_t assigned = 0;      // steps that `next` has given out of the current work
    engine::DataPosition position;  // where the data stands after them
    std::size_t started = 0;        // buckets of this step whose collectives have been started
    bool behind_updates = false;    // kernels come behind all updates of the last step
    bool recording = false;         // what is queued is kept, to be repeated
  };
  Progress progress;
  struct Reported {
    std::int64_t step = -1;        // of the last report; -1: none since `open`
    engine::LossScaleState scale;  // as that step had it
  };
  Reported reported;
  StepDeadline deadline;
  std::optional<WeightChecks> checks;   // where mirrors are compared; since `open`
  std::optional<LossScale> loss_scale;  // where it is dynamic; since `open`
  std::vector<double> averaged;         // statistics as they were when they were last averaged
  struct Overlapped {                   // what was done beside other work, so far
    std::int64_t updates = 0;           // of buckets, before backward had ended
    std::int64_t reductions = 0;        // of layers, begun while buckets were in flight
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
  std::size_t masters_at_ = 0;  // among the values kept
  engine::Buffer slots_, widened_;
  engine::Buffer found_;                // engine::UpdateMemory
  std::vector<engine::Buffer> spaces_;  // of a device with memory of its own
  struct {
    engine::Buffer weights, slots;
  } copies_;  // of these, for the host
  PlanTimeline timeline_;
  std::optional<collectives::Executor> executor_;
};

}  // namespace lockstep::strategies
