// SPDX-License-Identifier: MIT
// Calls of a strategy outside of steps: checkpoints, exchanges, texts for users. See synchronous.h.
#include <fmt/format.h>

#include "collectives/job/agreement.h"
#include "strategies/synchronous/mirror_check.h"
#include "strategies/synchronous/placement.h"
#include "strategies/synchronous/state_shards.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

std::vector<engine::Piece> Synchronous::pieces_to_save(engine::Replica& replica) {
  return strategies::pieces_to_save(mirror(replica), design_, std::size_t(job_->size()));
}

std::vector<engine::Piece> Synchronous::pieces_to_restore(engine::Replica& replica) {
  return strategies::pieces_to_restore(mirror(replica), design_);
}

void Synchronous::restore(engine::Replica& replica, engine::Checkpoints& checkpoints,
                          std::int64_t step, const std::vector<std::string>& fresh) {
  Mirror& m = mirror(replica);
  std::vector<std::string> zero = fresh;
  if (m.loss_scale) zero.emplace_back(LossScale::kArray);  // for runs without one
  Strategy::restore(replica, checkpoints, step, zero);
  m.upload();
  if (m.loss_scale) m.loss_scale->upload(open_.rule.scaling.start);
}

std::string Synchronous::plan() const {
  return plan_record(design_, job_->ranks().host, arithmetic());
}
std::string Synchronous::algorithm() const {
  return topology_.ranks.size() == 1 ? "none" : design_.algorithm;
}
std::string Synchronous::reason() const {
  return design_.reason.text();
}

std::string Synchronous::explain() const {
  if (mirrors_.empty()) return std::string(name()) + ": nothing is chosen before fit or restore";
  std::string text = fmt::format("{}: {}\n{}", name(), topology_.describe(),
                                 sentence(design_, plan_source_.recorded));
  if (!mirrors_.empty() && mirrors_[0]->checks)
    text += "\n" + strategies::sentence(*mirrors_[0]->checks, design_.update);
  const bool on_host = mirrors_.empty() || mirrors_[0]->kernels().in_host_memory();
  if (plan_source_.recorded) {
    text += plan_source_.other_arithmetic
                ? "\nthe plan is the checkpoint's"
                : "\nthe plan is the checkpoint's, so that the bits are the same";
  }
  if (plan_source_.chosen) {
    text += "\ncosts of ranks and links: ";
    text += plan_source_.costs_are;
  }
  if (engine::has_master(design_.dtype))
    text += fmt::format(
        "\ntypes: weights and gradients are {}; the optimizer's state and a master of each weight "
        "are float32",
        engine::name(design_.dtype));
  if (open_.rule.scaling != engine::LossScaling())
    text += fmt::format("\nloss scale: {}{}", text_of(open_.rule.scaling),
                        open_.rule.scaling.dynamic
                            ? "; a step whose gradients are not finite is skipped, and "
                              "halves it"
                            : "");
  if (design_.wire) {
    const std::string asked =
        !options_.step.wire ? "asked for when the checkpoint was written" : "asked for";
    text += topology_.hosts.size() > 1
                ? "\nwire: gradients travel between hosts as bfloat16, in half the bytes, since it "
                  "was " +
                      asked + "; new weights travel as they are"
                : "\nwire: bfloat16 was " + asked +
                      ", and changes nothing, since all replicas are on one host";
  }
  if (on_host) text += "\nnon-temporal stores: " + sentence(job_->access());
  if (!gpu_path_->sentence().empty())
    text += "\nGPUs of several processes: " + gpu_path_->sentence();
  if (topology_.hosts.size() > 1) text += "\nbetween hosts: " + sentence(options_.network);
  text += "\n" + communication_threads_.why;
  if (!on_host)
    return text +
           "\nkernels: the device's; of several for a shape all runs on this kind of device use "
           "the "
           "one that was fastest in the first measurement\n" +
           graphs_sentence() + "\n" + memory_sentence_;
  const engine::Kernels kernels = design_.kernels;
  text += kernels == engine::Kernels::kDirect
              ? "\nkernels: direct, which add each sum product by product"
          : kernels == engine::Kernels::kWinograd
              ? "\nkernels: Winograd's, wherever a convolution can use them"
              : "\nkernels: the fastest for each layer's sizes, the same on all ranks";
  return text + "\n" + memory_sentence_;
}

std::string Synchronous::placement() const {
  engine::require(!mirrors_.empty(), "{}: placement before open", name());
  std::vector<std::string> devices;
  for (const collectives::Topology::Rank& rank : topology_.ranks) devices.push_back(rank.device);
  return placement_table(mirrors_[0]->graph, design_, devices);
}

std::string Synchronous::place_of(int rank) const {
  if (topology_.processes.size() < 2 || rank < 0 || rank >= int(topology_.ranks.size())) return {};
  const auto process = std::size_t(topology_.ranks[std::size_t(rank)].process);
  return fmt::format("pid {} on host {}", topology_.processes[process].pid,
                     topology_.name_of_host(rank));
}

void Synchronous::run_collectively(const std::function<void()>& body, std::string_view what) {
  collectives::run_collectively(*job_, body, std::string(what));
}

std::vector<std::string> Synchronous::collect(const std::string& mine, std::string_view what) {
  return collectives::collect(*job_, mine, std::string(what));
}

double Synchronous::waited_seconds(engine::Replica& replica) const {
  Mirror& m = mirror(replica);
  const double for_start =
      graph_recorder_ ? graph_recorder_->waited_seconds(std::size_t(m.rank - first_rank())) : 0;
  return m.executor().waited_seconds() + for_start;
}

double Synchronous::messages_seconds(engine::Replica& replica) const {
  return mirror(replica).executor().messages_seconds();
}

}  // namespace lockstep::strategies
