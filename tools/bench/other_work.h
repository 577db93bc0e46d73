// SPDX-License-Identifier: MIT
// Reports whether the machine was busy with other work while some sizes were measured. A rank that
// others wait for may be kept from its processor for milliseconds, and then the medians measure
// that. A size is disturbed if a thread was ready without a processor (Linux: schedstat) for more
// than 30 ms and a quarter of the time; time that a hypervisor takes is not seen. Use it only if
// there are processors for all ranks. One thread.
#pragma once
#include <string>

#include "collectives/run/processor_wait.h"

namespace lockstep::tools::bench {

// Returns the wait that indicates more other work, for a line that combines two timings.
collectives::ProcessorWait worse(const collectives::ProcessorWait& one,
                                 const collectives::ProcessorWait& other);

class OtherWork {
 public:
  // Adds the wait of one size, or of one line of the table.
  void add(const collectives::ProcessorWait& wait);
  // Returns one line; empty if no size was disturbed.
  std::string note() const;

 private:
  int lines_ = 0, disturbed_ = 0;
  double most_ = 0;  // fraction of the time
};

}  // namespace lockstep::tools::bench
