// SPDX-License-Identifier: MIT
// Announces the address of the first process to the others, if no address is known before.
#pragma once
#include <chrono>
#include <functional>

#include "collectives/tcp/tcp_bootstrap.h"
#include "strategies/session/launch.h"

namespace lockstep::strategies {

// Returns the function that announces the first process through PMI (PMI_FD), with the secret, or
// through the store of torchrun, without it; null for other launches. It waits until `deadline`
// after the call.
std::function<collectives::Announcement(const collectives::Announcement&)> announcer(
    const Launch& launch, std::chrono::milliseconds deadline);

}  // namespace lockstep::strategies
