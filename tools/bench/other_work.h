// SPDX-License-Identifier: MIT
// What there is to say of the machine when some sizes were measured: that it was busy with other
// work. A rank that others wait for may be kept from its processor for milliseconds; then medians
// are of that. Only where there are processors for all ranks. One thread.
#pragma once
#include <string>

#include "collectives/run/processor_wait.h"

namespace lockstep::tools::bench {

// The one that says more of other work, of a line that is made of two timings.
collectives::ProcessorWait worse(const collectives::ProcessorWait& one,
                                 const collectives::ProcessorWait& other);

class OtherWork {
 public:
  // Of one size, or one line of the table.
  void add(const collectives::ProcessorWait& wait);
  // One line; empty where no size was disturbed.
  std::string note() const;

 private:
  int lines_ = 0, disturbed_ = 0;
  double most_ = 0;  // part of the time
};

}  // namespace lockstep::tools::bench
