// SPDX-License-Identifier: MIT
// Files that the first process of a job writes: a checkpoint, a picture. Only its host knows
// whether it can, so it tells all others, and all leave together.
#pragma once
#include <functional>

#include "strategies/session/session.h"

namespace lockstep::tools {

// Runs `open` in this process, for what all of them do; what it throws in the first process is said
// once, and the program leaves with the code of a file that cannot be written. Call it in every
// process of the job, before `session.connected()`.
void open_chief_files(strategies::Session& session, const std::function<void()>& open);

}  // namespace lockstep::tools
