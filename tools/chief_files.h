// SPDX-License-Identifier: MIT
// Files that the first process of a job writes: a checkpoint, a picture. Only its host knows
// whether it can, so it tells all others, and all leave together.
#pragma once
#include <functional>

#include "strategies/session/session.h"

namespace lockstep::tools {

// Runs `open`, which opens files in the first process and does not throw in the others. What it
// throws is said once, and all processes leave with the code of a file that cannot be written.
// Collective; before `session.connected()`.
void open_chief_files(strategies::Session& session, const std::function<void()>& open);

}  // namespace lockstep::tools
