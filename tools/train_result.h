// SPDX-License-Identifier: MIT
// The result of a run of `lockstep train`: as JSON (tools/README.md lists the fields), and as text.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/train/trainer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

nlohmann::json train_result(const TrainFlags& f, const engine::Strategy& strategy,
                            const engine::History& history);

// Returns "a worker pulled 1 MiB and pushed 2 MiB per step". `steps`: the number of steps that
// `traffic` covers.
std::string traffic_text(const engine::Traffic& traffic, std::int64_t steps);

}  // namespace lockstep::tools
