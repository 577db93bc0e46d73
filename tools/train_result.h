// SPDX-License-Identifier: MIT
// The result of a run of `lockstep train`, as a JSON object (--json) and as text.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/train/trainer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

nlohmann::json train_result(const TrainFlags& f, const engine::Strategy& strategy,
                            const engine::History& history);
// Describes the fields of the object and of the log, for --help.
std::string result_help();

// Returns "a worker pulled 1 MiB and pushed 2 MiB per step". `steps`: the number of steps that
// `traffic` covers.
std::string traffic_text(const engine::Traffic& traffic, std::int64_t steps);

}  // namespace lockstep::tools
