// SPDX-License-Identifier: MIT
// Agreement of all processes of a job before they run plans. They compare their inputs. If one of
// them fails, all throw the same error, and deaths are ignored from then on, since all leave.
// (bootstrap/outcome.h is for steps of a set-up, whose errors name the process that failed.)
// Collective over the job's bootstrap; one thread. All functions throw what the bootstrap throws.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "collectives/job/job.h"

namespace lockstep::collectives {

// Throws Error(kInvalid) on all processes if their texts differ, with a few of the lines that
// differ. `heading`: if the first lines differ, only these are shown, since the others follow from
// them. `what`: the subject of the comparison.
void require_same(Job& job, const std::string& mine, const std::string& what, bool heading = false);

// Runs `body` on all processes at the same time. If it throws, all processes throw the error of the
// first process on which it did.
void run_collectively(Job& job, const std::function<void()>& body, const std::string& what);

// Declares that this process will throw an error that all processes throw: from here on, a process
// that ends is not lost. All processes call it.
void leave_together(Job& job, const std::string& what);

// Returns the texts of all processes, of any length, on the first process, and nothing elsewhere.
std::vector<std::string> collect(Job& job, const std::string& mine, const std::string& what);

}  // namespace lockstep::collectives
