// SPDX-License-Identifier: MIT
// Selects instruction sets. The kernels of lockstep are compiled for several of them, and a machine
// runs the best one that it has. An InstructionSets object selects one at a time until it is
// destroyed. Use one object at a time, from one thread.
#pragma once
#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::engine {

class InstructionSets {
 public:
  InstructionSets() = default;
  InstructionSets(const InstructionSets&) = delete;
  InstructionSets& operator=(const InstructionSets&) = delete;
  ~InstructionSets() { allow(0); }  // all sets

  const std::vector<std::int64_t>& all() const { return all_; }
  // Selects `set` for subsequent calls and returns its name.
  std::string use(std::int64_t set) {
    allow(set);
    return hwy::TargetName(set);
  }

 private:
  static void allow(std::int64_t sets) {
    hwy::SetSupportedTargetsForTest(sets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
  std::vector<std::int64_t> all_ = hwy::SupportedAndGeneratedTargets();
};

}  // namespace lockstep::engine
