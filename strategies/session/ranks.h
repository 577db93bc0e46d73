// SPDX-License-Identifier: MIT
// EXPERIMENTAL, like the communicator: how a program with a loop of its own gets one.
#pragma once
#include <functional>

#include "collectives/communicator/communicator.h"
#include "strategies/session/session.h"

namespace lockstep::strategies {

// The processes of this job as ranks, one each. Collective; the session outlives it.
collectives::Communicator communicator(Session& session,
                                       const collectives::CommunicatorOptions& options = {});

// `size` ranks that are threads of this one process, each with a communicator of its own: calls
// `body` on each, and returns when all have come back. The first error of any is rethrown (rather
// the cause on one rank than what the others were told of it), and ends the waits of the others.
// Where threads of the process should count as ranks of a larger job: use processes.
void run_ranks(Session& session, int size,
               const std::function<void(collectives::Communicator&)>& body,
               const collectives::CommunicatorOptions& options = {});

}  // namespace lockstep::strategies
