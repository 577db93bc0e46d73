// SPDX-License-Identifier: MIT
// The memory of this process's replicas, planned and allocated: see synchronous.h.
#include <algorithm>
#include <set>

#include "engine/runtime/devices.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

using collectives::Space;
using collectives::Team;

namespace {

constexpr std::size_t kArenaUnit = std::size_t(2) << 20;

std::size_t align(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Returns the number of processes of this host that allocate memory at the same time.
std::size_t processes_of_host(const collectives::Job& job) {
  const std::vector<int>& process = job.ranks().process;
  std::set<int> processes;
  for (const int rank : job.ranks().local()) processes.insert(process[std::size_t(rank)]);
  return processes.size();
}

}  // namespace

engine::GraphOptions Synchronous::graph_options() const {
  return {.recompute = options_.step.recompute,
          .fallback = fallback_.planning_ops.get(),
          .device = to_string(options_.devices[0]->id())};
}

std::unique_ptr<engine::Ops> Synchronous::host_ops(engine::DType dtype) {
  if (!queued_ || open_.options.fallback == engine::Fallback::kNone) return nullptr;
  if (fallback_.devices.empty()) fallback_.devices = engine::host_devices();
  return fallback_.devices[0]->ops(dtype, {.threads = options_.threads});
}

std::vector<std::string> Synchronous::fallbacks() const {
  return mirrors_.empty() ? std::vector<std::string>() : mirrors_[0]->graph.fallbacks();
}

// Plans the memory of this process; throws if it exceeds the available memory.
void Synchronous::plan_memory(engine::Ops& ops, const engine::Graph& graph) {
  const std::size_t replicas = options_.devices.size();
  std::size_t arenas = align(arena_layout(graph, design_).bytes, kArenaUnit) * replicas;
  std::size_t messages = 0;  // host memory, whatever the device
  for (std::size_t i = 0; i < replicas; ++i)
    messages += collectives::WireStaging::bytes(design_.plan, first_rank() + int(i), queued_);
  if (!queued_) arenas += messages;
  std::size_t owned = 0;
  for (int stage : design_.stages.updates) {
    for (std::size_t i = 0; i < replicas; ++i) {
      for (engine::Range range :
           collectives::owned(design_.plan[std::size_t(stage)].plan, first_rank() + int(i))) {
        owned += range.size();
      }
    }
  }
  const std::size_t slots =
      kept_bytes(open_.rule, graph.dtype(), owned) + replicas * widened_bytes(graph);
  const auto graph_bytes = [&](std::size_t batch) {
    return engine::Graph::memory(*open_.graph, ops, largest_share(batch, open_.options.accumulate),
                                 graph_options())
        .bytes;
  };
  const auto use_of = [&](std::size_t batch) {
    const std::size_t share = largest_share(batch, open_.options.accumulate);
    const std::size_t loop =
        share * std::size_t(open_.options.accumulate) * open_.options.bytes_of_example;
    return memory_use(engine::Graph::memory(*open_.graph, ops, share, graph_options()), replicas,
                      arenas, slots, (loop + open_.options.bytes_of_replica) * replicas);
  };
  // A device with too little memory throws at the allocation.
  if (!ops.in_host_memory()) {
    constexpr double kMiB = 1 << 20;
    memory_sentence_ = fmt::format(
        "memory of the devices: {:.1f} MiB: {:.1f} weights and gradients, {:.1f} the optimizer's "
        "state, {:.1f} activations; besides batches on their way, and workspaces{}",
        double(arenas + slots + replicas * graph_bytes(open_.options.global_batch)) / kMiB,
        double(arenas) / kMiB, double(slots) / kMiB,
        double(replicas * graph_bytes(open_.options.global_batch)) / kMiB,
        messages == 0
            ? ""
            : fmt::format("; {:.1f} MiB of the host for messages", double(messages) / kMiB));
    return;
  }
  const MemoryRoom room = options_.room ? *options_.room : memory_room(processes_of_host(*job_));
  require_memory(room, options_.memory_limit, open_.options.global_batch, use_of);
  memory_sentence_ = sentence(use_of(open_.options.global_batch), room);
}

void Synchronous::map_memory() {
  const collectives::JobRanks& ranks = job_->ranks();
  const ArenaLayout layout = arena_layout(mirrors_[0]->graph, design_);
  const std::size_t plans = design_.plan.size();
  const bool in_host_memory = mirrors_[0]->kernels().in_host_memory();
  const bool shares = !in_host_memory && ranks.mine().size() < ranks.local().size();
  shared_.memory.emplace(ranks,
                         in_host_memory ? align(layout.bytes, kArenaUnit)
                         : shares       ? layout.host_bytes()
                                        : 0,
                         Team::control_bytes(ranks.local().size(), plans), "");
  shared_.team.emplace(*job_, *shared_.memory, plans);
  job_->expect_deaths(true);  // while the team exists
  for (std::size_t i = 0; !in_host_memory && i < mirrors_.size(); ++i) {
    const int rank = mirrors_[i]->rank;
    const auto bases =
        mirrors_[i]->take_spaces(layout, shares ? shared_.memory->block(rank) : nullptr);
    for (int space = 0; space < collectives::kSpaces; ++space)
      shared_.team->set_base(rank, Space(space), bases[std::size_t(space)]);
  }
  if (gpu_path_->shares()) {
    auto* const device = dynamic_cast<engine::ProcessSharing*>(options_.devices[0]);
    shared_.gpu_spaces = std::make_unique<GpuSpaces>(ranks, shares ? device : nullptr, layout,
                                                     *shared_.memory, *shared_.team, deadline());
  }
  for (int rank : shared_.memory->local()) {
    if (!in_host_memory) break;
    for (int space = 0; space < collectives::kSpaces; ++space) {
      shared_.team->set_base(rank, Space(space),
                             shared_.memory->block(rank) + layout.offset[space]);
    }
  }
}

}  // namespace lockstep::strategies
