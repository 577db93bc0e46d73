// SPDX-License-Identifier: MIT
// Files that the first process of a job writes, such as checkpoints and plots. Only its host knows
// whether they can be written, so it informs the other processes, and all leave together.
#pragma once
#include <functional>

#include "strategies/session/session.h"

namespace lockstep::tools {

// Runs `open`, which opens files in the first process and does not throw in the others. An error of
// it is reported once, and all processes leave with the code of a file that cannot be written.
// Collective; call it before `session.connected()`.
void open_chief_files(strategies::Session& session, const std::function<void()>& open);

}  // namespace lockstep::tools
