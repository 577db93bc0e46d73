// SPDX-License-Identifier: MIT
#include "collectives/algorithms/registry.h"

#include <fmt/core.h>

#include <array>

#include "collectives/algorithms/algorithms.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/spelling.h"

namespace lockstep::collectives {
namespace {

std::string any_hosts(const std::vector<int>& /*host*/) {
  return {};
}

std::size_t no_scratch(const Request& /*request*/) {
  return 0;
}

constexpr std::array kAllReduce{
    Algorithm{"direct", true, direct_refusal, direct_all_reduce, no_scratch, true},
    Algorithm{"one_shot", true, direct_refusal, one_shot_all_reduce, one_shot_scratch, false,
              one_shot_same},
    Algorithm{"ring", false, any_hosts, ring_all_reduce, ring_scratch, true, ring_same},
    Algorithm{"halving_doubling", true, any_hosts, halving_doubling_all_reduce,
              halving_doubling_scratch, false, halving_doubling_same},
    Algorithm{"hierarchical", false, any_hosts, hierarchical_all_reduce, hierarchical_scratch, true,
              hierarchical_same},
    Algorithm{"hierarchical_halving", false, any_hosts, hierarchical_halving_all_reduce,
              hierarchical_halving_scratch, false, hierarchical_halving_same},
    Algorithm{"leader_hierarchical", false, any_hosts, leader_hierarchical_all_reduce,
              leader_hierarchical_scratch, true, leader_hierarchical_same},
};

}  // namespace

std::span<const Algorithm> all_reduce_algorithms() {
  return kAllReduce;
}

const Algorithm& find_algorithm(std::string_view name, std::span<const Algorithm> among) {
  std::vector<std::string> known;
  for (const Algorithm& algorithm : among) {
    if (algorithm.name == name) return algorithm;
    known.emplace_back(algorithm.name);
  }
  engine::fail(engine::Code::kInvalid, "unknown all-reduce algorithm '{}'{}", engine::brief(name),
               engine::known_names(name, known));
}

}  // namespace lockstep::collectives
