// SPDX-License-Identifier: MIT
// From the flags of `lockstep train` to a strategy.
#pragma once
#include <memory>
#include <optional>

#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/session/factories.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

using Cluster = std::optional<strategies::ClusterConfig>;  // of a job of tasks

// Throws Error(kInvalid) for flags of another strategy than the one that was asked for.
void check_servers(const TrainFlags& f);
// Throws Error(kInvalid) for a device that is not there, or has no kernels for the type.
void check_device(const TrainFlags& f);
// Throws Error(kInvalid) for a number that makes no sense.
strategies::StrategyOptions strategy_options(const TrainFlags& f);
// The session must outlive it.
std::unique_ptr<engine::Strategy> choose_strategy(const TrainFlags& f, strategies::Session& session,
                                                  const Cluster& cluster,
                                                  const strategies::StrategyOptions& options);

}  // namespace lockstep::tools
