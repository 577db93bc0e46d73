// SPDX-License-Identifier: MIT
#include "strategies/synchronous/reason.h"

namespace lockstep::strategies {

Reason Reason::asked() {
  Reason reason("it was asked for");
  reason.parts_.back().asked = true;
  return reason;
}

void Reason::add(std::string choice, const Reason& why) {
  for (const Part& part : why.parts_) parts_.push_back({choice, part.why, part.asked});
}

void Reason::add(std::string choice, std::string why) {
  parts_.push_back({std::move(choice), std::move(why), false});
}

std::string Reason::text(bool then) const {
  std::string text;
  for (const Part& part : parts_) {
    if (!text.empty()) text += "; ";
    if (!part.choice.empty()) text += part.choice + ": ";
    text += part.why;
    if (part.asked && then) text += " when the checkpoint was written";
  }
  return text;
}

}  // namespace lockstep::strategies
