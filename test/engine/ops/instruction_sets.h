// SPDX-License-Identifier: MIT
// Own kernels are compiled for several instruction sets, and a machine runs the best that it has.
// Here each that this machine has gets its turn, until this is gone. One at a time, one thread.
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
  ~InstructionSets() { allow(0); }  // all that there are

  const std::vector<std::int64_t>& all() const { return all_; }
  // From now on; its name.
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
