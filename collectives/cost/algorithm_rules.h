// SPDX-License-Identifier: MIT
// Which algorithm a user asks for, by bytes of a sum; the planner chooses for sizes without one.
// A plain value, made of the text that size_rules.h reads. Any thread.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/cost/size_rules.h"

namespace lockstep::collectives {

class AlgorithmRules {
 public:
  AlgorithmRules() = default;  // nothing is asked for
  // Implicit: "ring" is a rule. Throws Error(kInvalid) as parse_size_rules does.
  AlgorithmRules(const std::string& text);
  AlgorithmRules(const char* text) : AlgorithmRules(std::string(text)) {}

  bool automatic() const { return rules_.empty(); }
  const std::vector<SizeRule>& rules() const { return rules_; }  // ascending
  const SizeRule* find(std::size_t bytes) const;                 // null: nothing is asked for
  // The algorithm that is asked for at all sizes; empty where there is none.
  std::string_view only() const;
  // "auto", or as it was given.
  const std::string& text() const { return text_; }
  bool operator==(const AlgorithmRules& other) const { return rules_ == other.rules_; }

 private:
  std::string text_ = "auto";
  std::vector<SizeRule> rules_;
};

}  // namespace lockstep::collectives
