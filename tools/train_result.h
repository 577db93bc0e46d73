// SPDX-License-Identifier: MIT
// What a run of `lockstep train` came to: as JSON (tools/README.md lists the fields), and in words.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/train/trainer.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

nlohmann::json train_result(const TrainFlags& f, const engine::Strategy& strategy,
                            const engine::History& history);

// "a worker pulled 1 MiB and pushed 2 MiB per step", over so many steps.
std::string traffic_text(const engine::Traffic& traffic, std::int64_t steps);

}  // namespace lockstep::tools
