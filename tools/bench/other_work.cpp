// SPDX-License-Identifier: MIT
#include "tools/bench/other_work.h"

#include <fmt/core.h>

#include <algorithm>

namespace lockstep::tools::bench {

collectives::ProcessorWait worse(const collectives::ProcessorWait& one,
                                 const collectives::ProcessorWait& other) {
  // A short wait may be a large part of the time and still mean nothing.
  if (one.disturbed() != other.disturbed()) return one.disturbed() ? one : other;
  return one.part() < other.part() ? other : one;
}

void OtherWork::add(const collectives::ProcessorWait& wait) {
  ++lines_;
  if (!wait.disturbed()) return;
  ++disturbed_;
  most_ = std::max(most_, wait.part());
}

std::string OtherWork::note() const {
  if (disturbed_ == 0) return {};
  return fmt::format(
      "the machine is busy with other work: in {} of {} lines a rank waited for a processor, up to "
      "{:.0f} % of the time, so their times may be far too long; end what else runs (top shows it) "
      "and measure again",
      disturbed_, lines_, 100 * most_);
}

}  // namespace lockstep::tools::bench
