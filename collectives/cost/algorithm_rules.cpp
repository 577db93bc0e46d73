// SPDX-License-Identifier: MIT
#include "collectives/cost/algorithm_rules.h"

#include <algorithm>

namespace lockstep::collectives {

AlgorithmRules::AlgorithmRules(const std::string& text) : rules_(parse_size_rules(text)) {
  if (!rules_.empty()) text_ = text;
  std::ranges::sort(rules_, {}, &SizeRule::from);
}

const SizeRule* AlgorithmRules::find(std::size_t bytes) const {
  const auto found = std::ranges::find_if(
      rules_, [&](const SizeRule& rule) { return rule.from <= bytes && bytes < rule.to; });
  return found == rules_.end() ? nullptr : &*found;
}

std::string_view AlgorithmRules::only() const {
  const bool all = rules_.size() == 1 && rules_[0] == SizeRule{rules_[0].algorithm};
  return all ? std::string_view(rules_[0].algorithm) : std::string_view();
}

}  // namespace lockstep::collectives
