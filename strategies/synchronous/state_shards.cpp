// SPDX-License-Identifier: MIT
#include "strategies/synchronous/state_shards.h"

#include <algorithm>
#include <set>
#include <string_view>

namespace lockstep::strategies {

using engine::Parameter;
using engine::Piece;
using engine::Range;

namespace {

// Adds the statistics, which are float64 for every type of graph and equal on all ranks when saved.
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

// Returns which rank saves each array that all ranks have: the rank with the fewest elements so
// far.
std::vector<int> assign_arrays(const std::vector<Parameter>& layout, int ranks) {
  std::vector<std::size_t> load(std::size_t(ranks), 0);
  std::vector<int> owner;
  for (const Parameter& parameter : layout) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += parameter.range.size();
    owner.push_back(int(least - load.begin()));
  }
  return owner;
}

// Adds what updates keep of a mirror's owned ranges, for the parameters in `names`. Slots have
// their own and the parameter's name; masters have the parameter's name.
void add_slots(const Mirror& mirror, const engine::UpdateRule& rule,
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

// Saves 16-bit weights as their masters, or widened if they have none.
std::vector<Piece> pieces_to_save(Mirror& m, const StepDesign& design, std::size_t ranks) {
  m.download();
  const std::vector<Parameter>& layout = m.graph.layout();
  const std::vector<int> owner = assign_arrays(layout, int(ranks));
  const bool masters = engine::has_master(m.graph.dtype());
  std::vector<Piece> pieces;
  std::set<std::string_view> kept;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    // With separate updates every rank has all slots: the owner of a weight saves its slots.
    if (owner[i] == m.rank || design.update == Update::kFused) kept.insert(layout[i].name);
    if (owner[i] != m.rank || (masters && !layout[i].frozen)) continue;
    pieces.push_back(weight(m, layout[i]));
    if (masters) pieces.back().dtype = m.slot_dtype(), pieces.back().data = m.widened(layout[i]);
  }
  add_slots(m, design.rule, kept, pieces);
  if (m.rank == 0) add_statistics(m, pieces);
  if (m.rank == 0 && m.loss_scale) pieces.push_back(m.loss_scale->piece());
  return pieces;
}

// Restores 16-bit weights from their masters' arrays: `Checkpoints::restore` rounds.
std::vector<Piece> pieces_to_restore(Mirror& m, const StepDesign& design) {
  m.download();
  std::vector<Piece> pieces;
  std::set<std::string_view> all;
  for (const Parameter& parameter : m.graph.layout()) {
    pieces.push_back(weight(m, parameter));
    all.insert(parameter.name);
  }
  add_slots(m, design.rule, all, pieces);
  add_statistics(m, pieces);
  if (m.loss_scale) pieces.push_back(m.loss_scale->piece());
  return pieces;
}

}  // namespace lockstep::strategies
