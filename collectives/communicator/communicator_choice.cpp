// SPDX-License-Identifier: MIT
// Chooses the communicator's algorithm for each message size.
#include <iterator>

#include "collectives/communicator/communicator.h"
#include "collectives/cost/memory_access.h"
#include "collectives/cost/size_rules.h"
#include "collectives/job/calibration.h"
#include "collectives/topology/topology.h"
#include "engine/base/error.h"

namespace lockstep::collectives {

namespace {

// Device of a process's rank, as `lockstep plan` names it. Costs are stored by that name.
constexpr const char* kDevice = "cpu:0";
// Bytes for which the planner predicts times. It interpolates and extrapolates linearly.
constexpr std::array<std::size_t, 10> kPriced{1 << 8,  1 << 10, 1 << 12, 1 << 14, 1 << 16,
                                              1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26};

}  // namespace

// Asks the planner before anything is summed. On one host it admits only the algorithms that round
// as the header promises; the others move more memory there.
void Communicator::choose(const CommunicatorOptions& options) {
  rules_ = parse_size_rules(options.algorithm);
  for (const SizeRule& rule : rules_) {
    const std::string why = find_algorithm(rule.algorithm).refusal(job_.ranks().host);
    engine::require(why.empty(), "algorithm {} {}: use auto", rule.algorithm, why);
  }
  std::vector<Algorithm> candidates;
  for (const Algorithm& algorithm : all_reduce_algorithms())
    if (!job_.ranks().one_host() || algorithm.name == "direct" || algorithm.name == "one_shot")
      candidates.push_back(algorithm);
  Topology topology = discover(job_.bootstrap(), {kDevice});
  CalibrationOptions stored;
  stored.cache = options.cost_cache;
  const Calibration found = stored_costs(job_, topology, stored);
  topology = found.topology;
  const int host = job_.ranks().host[std::size_t(rank())];
  job_.set_access(memory_access(topology.hosts[std::size_t(host)].costs));
  costs_are_ = topology.costs_are + (found.note.empty() ? "" : " (" + found.note + ")");
  choices_ = plan_all_reduce(topology, candidates, {}, {kPriced.begin(), kPriced.end()},
                             &job_.bootstrap());
}

std::string Communicator::explain() const {
  std::string text = "all-reduce: ", before;
  for (const SizeRule& rule : rules_)
    text += fmt::format("{} where it was asked for; ", rule.algorithm);
  for (const Choice& choice : choices_->table()) {
    if (choice.algorithm == before) continue;
    text += fmt::format("{}{} from {} on, because {}", before.empty() ? "" : "; ", choice.algorithm,
                        size_text(choice.bytes), choice.reason);
    before = choice.algorithm;
  }
  return fmt::format("{}\ncosts of ranks and links: {}\nnon-temporal stores: {}", text, costs_are_,
                     sentence(job_.access()));
}

const Algorithm& Communicator::algorithm_for(const Request& request) const {
  const std::size_t bytes = request.subject.size() * engine::size_of(request.dtype);
  for (const SizeRule& rule : rules_)
    if (rule.from <= bytes && bytes < rule.to) return find_algorithm(rule.algorithm);
  return find_algorithm(choices_->choose(bytes).algorithm);
}

}  // namespace lockstep::collectives
