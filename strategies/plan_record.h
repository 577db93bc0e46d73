// SPDX-License-Identifier: MIT
// The plan of a membership as it stands in a checkpoint's manifest, and what a later run does with
// it. The same replicas on the same hosts use the same plan again, since it fixes the order of
// summation and with it the bits; any other membership plans afresh.
#pragma once
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "strategies/step_design.h"

namespace lockstep::strategies {

std::string plan_record(const StepDesign& design, const std::vector<int>& host);  // JSON

// Changes `options` to the record's where the membership is the same and nothing else was asked for
// (options that were given win, with a warning that bits may differ). True when it was obeyed.
// Throws Error(kCorrupt) for text that is no record.
bool obey_record(const std::string& record, const std::vector<int>& host, DesignOptions& options,
                 const engine::Log& log);

}  // namespace lockstep::strategies
