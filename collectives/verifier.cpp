// SPDX-License-Identifier: MIT
#include "collectives/verifier.h"
namespace lockstep::collectives {
std::string verify(const StepPlan&, Goal, Space) {
  return {};
}
std::string verify(const Plan&, Goal, Space) {
  return {};
}
}  // namespace lockstep::collectives
