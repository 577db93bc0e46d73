// SPDX-License-Identifier: MIT
// EXPERIMENTAL, like the communicator: communicators for programs with their own training loop.
#pragma once
#include <functional>

#include "collectives/communicator/communicator.h"
#include "strategies/session/session.h"

namespace lockstep::strategies {

// Returns a communicator whose ranks are the job's processes. Collective; the session must outlive
// it.
collectives::Communicator communicator(Session& session,
                                       const collectives::CommunicatorOptions& options = {});

// Runs `body` on `size` ranks, which are threads of this process with a communicator each. Returns
// when all have returned. The first error of any rank is rethrown and ends the waits of the others.
// An error of a rank itself has precedence over the report of it by other ranks. The threads cannot
// be ranks of a larger job; use processes for that.
void run_ranks(Session& session, int size,
               const std::function<void(collectives::Communicator&)>& body,
               const collectives::CommunicatorOptions& options = {});

}  // namespace lockstep::strategies
