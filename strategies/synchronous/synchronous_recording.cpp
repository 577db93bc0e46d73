// SPDX-License-Identifier: MIT
// Graph capture of steps: the conditions, and the capture itself. See graph_recorder.h.
#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

// Returns why steps cannot be captured, as the end of a sentence; empty if they can. Work of the
// host in the middle of a step would not be repeated.
std::string Synchronous::why_no_graphs() const {
  if (!queued_) return "graphs are of GPUs, and the replicas are on processors";
  if (job_->bootstrap().processes() > 1)
    return "the host takes part in sums over several processes";
  const auto on_host = [](const engine::GraphSpec::Node& node) { return !node.layer->on_device(); };
  if (std::ranges::any_of(open_.graph->nodes(), on_host) || !open_.graph->loss().on_device())
    return "layers of the model, or its loss, run on the host";
  return {};
}

void Synchronous::open_graph_recorder() {
  if (options_.step.graphs == Graphs::kOff || !why_no_graphs().empty()) return;
  std::vector<engine::Recorder*> recorders;
  for (const auto& mirror : mirrors_) {
    recorders.push_back(mirror->kernels().recorder());
    engine::invariant(recorders.back() != nullptr, "a device with memory of its own records");
  }
  graph_recorder_.emplace(std::move(recorders), *shared_.team, deadline());
}

std::string Synchronous::graphs_sentence() const {
  if (options_.step.graphs == Graphs::kOff)
    return "graphs: off, since that was asked for (0 steps ahead and a profile ask for it, too)";
  if (!graph_recorder_) return "graphs: off, since " + why_no_graphs();
  const std::string why = graph_recorder_->refusal();
  if (!why.empty()) return "graphs: off, since the device refused: " + why;
  return fmt::format(
      "graphs: a step is queued call by call {} times, then recorded, and from then on started as "
      "one graph",
      GraphRecorder::kBefore);
}

void Synchronous::compute(engine::Replica& replica, int part, std::size_t global_batch,
                          const std::function<void()>& queue) {
  using Next = GraphRecorder::Next;
  if (!graph_recorder_) return queue();
  Mirror& m = mirror(replica);
  const auto local = std::size_t(m.rank - first_rank());
  const Next next = graph_recorder_->next(local, part, global_batch, m.Replica::state.examples);
  if (next == Next::kQueue || (next == Next::kRecord && !record(m, part, queue))) return queue();
  // A captured part must run after the sums of steps that were queued call by call.
  for (std::size_t stage = 0; stage < design_.stages.of_step; ++stage)
    m.executor().wait(int(stage), "a recorded step");
  if (m.loss_scale || job_->size() > 1) m.kernels().go_behind_reductions();
  if (m.loss_scale) m.loss_scale->give(m.context->state, m.Replica::state.step);
  graph_recorder_->repeat(local, part);
  if (m.checks && part + 1 == open_.options.accumulate) m.checks->keep(m.Replica::state.step);
}

// Returns whether the step was captured: false if the device refused. Plans run on the host as
// usual and end when all of it is queued. A refused step is then executed call by call.
bool Synchronous::record(Mirror& m, int part, const std::function<void()>& queue) {
  const auto local = std::size_t(m.rank - first_rank());
  for (std::size_t stage = 0; stage < design_.stages.of_step; ++stage)
    m.executor().finish(int(stage), "before a step is recorded");
  graph_recorder_->begin(local, part);
  m.progress.recording = true;
  queue();
  for (std::size_t stage = 0; stage < design_.stages.of_step; ++stage)
    m.executor().wait(int(stage), "the recording of a step");
  m.progress.recording = false;
  if (graph_recorder_->end(local)) return true;
  const std::string why = graph_recorder_->refusal();
  engine::require(options_.step.graphs != Graphs::kOn,
                  "graphs: on was asked for, and the device refused: {}", why);
  if (m.rank == first_rank())
    options_.log.warning("steps are queued call by call, since no graph can be made of them: {}",
                         why);
  return false;
}

}  // namespace lockstep::strategies
