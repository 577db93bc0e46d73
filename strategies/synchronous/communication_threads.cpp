// SPDX-License-Identifier: MIT
#include "strategies/synchronous/communication_threads.h"

#include <fmt/core.h>

namespace lockstep::strategies {

CommunicationThreads communication_threads(const CommunicationLoad& load) {
  if (load.asked) {
    return {*load.asked, *load.asked
                             ? "communication has threads of its own, since that was asked for"
                             : "the computing threads communicate, since that was asked for"};
  }
  if (load.cores >= load.replicas * (load.threads + 1)) {
    return {true, "communication has threads of its own, since there are idle cores"};
  }
  if (load.replicas == 1 && load.wakes && load.sent > CommunicationThreads::kHeld) {
    return {true, fmt::format("communication has threads of its own, since {:.1f} MB a step go to "
                              "other hosts, more than the wire's buffers hold between layers",
                              double(load.sent) / 1e6)};
  }
  return {false,
          "the computing threads communicate between layers, since the replicas use all cores"};
}

}  // namespace lockstep::strategies
