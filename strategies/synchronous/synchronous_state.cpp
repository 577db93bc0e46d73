// SPDX-License-Identifier: MIT
// What a checkpoint takes from a strategy, and what people and tests ask of it: see synchronous.h.
#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>

#include "collectives/check/verifier.h"
#include "strategies/synchronous/placement.h"
#include "strategies/synchronous/synchronous.h"

namespace lockstep::strategies {

using collectives::Space;
using engine::Parameter;
using engine::Piece;
using engine::Range;

namespace {

// Float64 in every type of graph, and the same on all ranks when they are saved.
void add_statistics(Mirror& mirror, std::vector<Piece>& pieces) {
  for (const engine::Statistic& statistic : mirror.graph.statistics()) {
    const std::size_t count = statistic.range.size();
    double* const values = mirror.graph.statistic_values().data() + statistic.range.begin;
    pieces.push_back({statistic.name,
                      {count},
                      engine::DType::kFloat64,
                      {0, count},
                      reinterpret_cast<std::byte*>(values)});
  }
}

// Who saves an array that all ranks have: each to the rank with the fewest bytes so far.
std::vector<int> deal_arrays(const std::vector<Parameter>& layout, int ranks) {
  std::vector<std::size_t> load(std::size_t(ranks), 0);
  std::vector<int> owner;
  for (const Parameter& parameter : layout) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += parameter.range.size();
    owner.push_back(int(least - load.begin()));
  }
  return owner;
}

// What updates keep, of a mirror's owned ranges: slots under their name and the parameter's, and
// masters, which are the parameter itself. Of the parameters with these names.
void add_kept(const Mirror& mirror, const engine::UpdateRule& rule,
              const std::set<std::string_view>& names, std::vector<Piece>& pieces) {
  for (std::size_t k = 0; k < engine::values_kept(rule, mirror.graph.dtype()); ++k) {
    mirror.each_owned([&](const Parameter& parameter, Range part, std::size_t packed) {
      if (!names.contains(parameter.name)) return;
      pieces.push_back({k < rule.slots() ? fmt::format("{}/{}", rule.slot_name(k), parameter.name)
                                         : parameter.name,
                        parameter.shape,
                        mirror.slot_dtype(),
                        {part.begin - parameter.range.begin, part.end - parameter.range.begin},
                        mirror.slot(k, packed)});
    });
  }
}

Piece weight(const Mirror& mirror, const Parameter& parameter) {
  const engine::DType dtype = mirror.graph.dtype();
  return {parameter.name,
          parameter.shape,
          dtype,
          {0, parameter.range.size()},
          mirror.host_weights() + parameter.range.begin * engine::size_of(dtype)};
}

}  // namespace

// Weights of 16 bits are saved as their masters, and where they have none, widened.
std::vector<Piece> Synchronous::pieces_to_save(engine::Replica& replica) {
  Mirror& m = mirror(replica);
  m.download();
  const std::vector<Parameter>& layout = m.graph.layout();
  const std::vector<int> owner = deal_arrays(layout, int(host_.size()));
  const bool masters = engine::has_master(m.graph.dtype());
  std::vector<Piece> pieces;
  std::set<std::string_view> kept;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    // In separate updates everybody keeps all of it: each is saved by its weight's owner.
    if (owner[i] == m.rank || design_.update == Update::kFused) kept.insert(layout[i].name);
    if (owner[i] != m.rank || (masters && !layout[i].frozen)) continue;
    pieces.push_back(weight(m, layout[i]));
    if (masters) pieces.back().dtype = m.slot_dtype(), pieces.back().data = m.widened(layout[i]);
  }
  add_kept(m, rule_, kept, pieces);
  if (m.rank == 0) add_statistics(m, pieces);
  if (m.rank == 0 && m.loss_scale) pieces.push_back(m.loss_scale->piece());
  return pieces;
}

// Weights of 16 bits from the same arrays as their masters: `Checkpoints::restore` rounds.
std::vector<Piece> Synchronous::pieces_to_restore(engine::Replica& replica) {
  Mirror& m = mirror(replica);
  m.download();
  std::vector<Piece> pieces;
  std::set<std::string_view> all;
  for (const Parameter& parameter : m.graph.layout()) {
    pieces.push_back(weight(m, parameter));
    all.insert(parameter.name);
  }
  add_kept(m, rule_, all, pieces);
  add_statistics(m, pieces);
  if (m.loss_scale) pieces.push_back(m.loss_scale->piece());
  return pieces;
}

void Synchronous::restore(engine::Replica& replica, engine::Checkpoints& checkpoints,
                          std::int64_t step, const std::vector<std::string>& fresh) {
  Mirror& m = mirror(replica);
  std::vector<std::string> zero = fresh;
  if (m.loss_scale) zero.emplace_back(LossScale::kArray);  // of runs that had none
  Strategy::restore(replica, checkpoints, step, zero);
  m.upload();
  if (m.loss_scale) m.loss_scale->upload(rule_.scaling.start);
}

std::string Synchronous::plan() const {
  return plan_record(design_, host_, arithmetic());
}
std::string Synchronous::algorithm() const {
  return design_.algorithm;
}
std::string Synchronous::reason() const {
  return design_.reason.text();
}

// Before `open`, of one replica, or where nothing is compared: nothing.
std::string Synchronous::mirrors_sentence() const {
  if (mirrors_.empty() || !mirrors_[0]->checks) return {};
  const bool fused = design_.update == Update::kFused;
  const std::size_t cycle = mirrors_[0]->checks->cycle();
  std::string text = "\nmirrors: each step compares the weights of all replicas";
  if (cycle > 1) text += fmt::format("; those of large layers take turns within {} steps", cycle);
  text +=
      ". A difference ends the run one step later. The comparison does not find wrong gradients";
  if (fused) text += ", a wrong optimizer state";
  if (fused && cycle > 1) text += ", or a difference that an update overwrites first";
  return text;
}

std::string Synchronous::explain() const {
  std::string text = fmt::format("{}: {}\n{}", name(), topology_.describe(), sentence(design_));
  text += mirrors_sentence();
  const bool on_host = mirrors_.empty() || mirrors_[0]->kernels().in_host_memory();
  if (planned_before_) {
    text += other_arithmetic_ ? "\nthe plan is the checkpoint's"
                              : "\nthe plan is the checkpoint's, so that the bits are the same";
  }
  if (planner_chose_) {
    text += "\ncosts of ranks and links: ";
    text += costs_are_;
  }
  if (engine::has_master(design_.dtype))
    text += fmt::format(
        "\ntypes: weights and gradients are {}; the optimizer's state and a master of each weight "
        "are float32",
        engine::name(design_.dtype));
  if (rule_.scaling != engine::LossScaling())
    text += fmt::format("\nloss scale: {}{}", text_of(rule_.scaling),
                        rule_.scaling.dynamic
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
  if (on_host) text += "\nnon-temporal stores: " + sentence(access_);
  if (!gpu_exchange_.empty()) text += "\nGPUs of several processes: " + gpu_exchange_;
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

// Pieces that a bootstrap takes, as many rounds as the longest text needs.
std::vector<std::string> Synchronous::collect(const std::string& mine, std::string_view what) {
  constexpr std::size_t kPiece = std::size_t(1) << 18;
  const std::string name(what);
  std::size_t longest = 0;
  for (const std::string& size : bootstrap_.all_gather(std::to_string(mine.size()), name)) {
    longest = std::max(longest, std::size_t(std::stoull(size)));
  }
  const bool chief = first_rank() == 0;
  std::vector<std::string> all(chief ? std::size_t(bootstrap_.processes()) : 0);
  for (std::size_t at = 0; at < longest; at += kPiece) {
    const std::vector<std::string> pieces =
        bootstrap_.all_gather(at < mine.size() ? mine.substr(at, kPiece) : "", name);
    for (std::size_t process = 0; process < all.size(); ++process) all[process] += pieces[process];
  }
  return all;
}

double Synchronous::waited_seconds(engine::Replica& replica) const {
  Mirror& m = mirror(replica);
  const double for_start =
      recordings_ ? recordings_->waited_seconds(std::size_t(m.rank - first_rank())) : 0;
  return m.executor().waited_seconds() + for_start;
}

double Synchronous::messages_seconds(engine::Replica& replica) const {
  return mirror(replica).executor().messages_seconds();
}

std::string Synchronous::verify() const {
  collectives::StepPlan step(design_.plan.begin(),
                             design_.plan.begin() + std::ptrdiff_t(design_.step_stages));
  return collectives::verify(step, collectives::Goal::kUpdateEverywhere);
}

std::vector<double> Synchronous::weights(int local) const {
  Mirror& m = *mirrors_[std::size_t(local)];
  m.download();
  std::vector<double> values(m.graph.parameters());
  const std::byte* from = m.host_weights();
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = engine::number_at(from, m.graph.dtype(), i);
  }
  return values;
}

std::size_t Synchronous::owned_elements(int local) const {
  return mirrors_[std::size_t(local)]->owned_elements();
}

std::int64_t Synchronous::reductions_beside() const {
  return std::accumulate(
      mirrors_.begin(), mirrors_.end(), std::int64_t(0),
      [](std::int64_t sum, const auto& m) { return sum + m->reductions_beside; });
}

void Synchronous::corrupt(int local, std::size_t element) {
  Mirror& m = *mirrors_[std::size_t(local)];
  const std::size_t width = engine::size_of(m.graph.dtype());
  m.download();
  m.host_weights()[element * width] ^= std::byte{1};
  m.upload();
}

}  // namespace lockstep::strategies
