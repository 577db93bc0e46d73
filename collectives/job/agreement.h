// SPDX-License-Identifier: MIT
// Agreement of all processes of a job before they run plans: they compare what each was given, and
// where one of them fails, all throw the same error; then deaths are ignored, since all leave.
// (bootstrap/outcome.h serves steps of a set-up, which name the process that failed.) Collective,
// over the job's bootstrap; one thread. All functions throw what the bootstrap throws.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "collectives/job/job.h"

namespace lockstep::collectives {

// Throws Error(kInvalid) on all processes where their texts are not the same, with a few of the
// lines that differ. `heading`: where the first lines differ, only these are shown, since the
// others follow from them. `what` was compared.
void require_same(Job& job, const std::string& mine, const std::string& what, bool heading = false);

// Runs `body` on all processes at the same time. Where it throws, all processes throw the error of
// the first one on which it did.
void run_collectively(Job& job, const std::function<void()>& body, const std::string& what);

// To be called by all processes before they throw the same error: from here on a process that ends
// is not a lost one.
void leave_together(Job& job, const std::string& what);

// Returns the texts of all processes, of any length, on the first process; elsewhere nothing.
std::vector<std::string> collect(Job& job, const std::string& mine, const std::string& what);

}  // namespace lockstep::collectives
