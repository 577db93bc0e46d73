// SPDX-License-Identifier: MIT
// Algorithms that a user asks for, by the bytes of a sum. The planner chooses for other sizes. A
// plain value, made of the text that size_rules.h parses. Thread-safe.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/size_rules.h"

namespace lockstep::collectives {

class AlgorithmRules {
 public:
  AlgorithmRules() = default;  // no rules
  // Converts implicitly, since "ring" is a rule. Throws Error(kInvalid) as parse_size_rules does.
  AlgorithmRules(const std::string& text);
  AlgorithmRules(const char* text) : AlgorithmRules(std::string(text)) {}

  bool automatic() const { return rules_.empty(); }
  const std::vector<SizeRule>& rules() const { return rules_; }  // ascending
  const SizeRule* find(std::size_t bytes) const;                 // null: no rule
  // Returns the algorithm of a rule for all sizes, or an empty string if there is none.
  std::string_view only() const;
  // Returns "auto", or the text as it was given.
  const std::string& text() const { return text_; }
  bool operator==(const AlgorithmRules& other) const { return rules_ == other.rules_; }

 private:
  std::string text_ = "auto";
  std::vector<SizeRule> rules_;
};

}  // namespace lockstep::collectives
