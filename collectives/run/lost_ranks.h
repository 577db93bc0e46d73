// SPDX-License-Identifier: MIT
// Who is lost, out of the text that says so. Whoever notices a death says it in a sentence that
// goes through control blocks, bootstraps and wires to all others: "calibration: ranks 2 to 3
// (process 4711) died while costs were measured", "rank 5 on host h2 is gone (connection closed)".
#pragma once
#include <string>
#include <vector>

namespace lockstep::collectives {

// Of a job of so many ranks those of whom `why` says that they died, are gone, are lost or have
// left, wherever in it; ascending, each once. Others that it names are not among them.
std::vector<int> lost_ranks(const std::string& why, int ranks);

}  // namespace lockstep::collectives
