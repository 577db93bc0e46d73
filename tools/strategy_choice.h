// SPDX-License-Identifier: MIT
// Turns the flags of `lockstep train` into a strategy.
#pragma once
#include <memory>
#include <optional>

#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/session/factories.h"
#include "tools/train_flags.h"

namespace lockstep::tools {

using Cluster = std::optional<strategies::ClusterConfig>;  // if the job consists of tasks

// Throws Error(kInvalid) for flags that belong to another strategy than the requested one.
void check_servers(const TrainFlags& f);
// Throws Error(kInvalid) for a device that does not exist, or that has no kernels for the dtype.
void check_device(const TrainFlags& f);
// Returns the options. Throws Error(kInvalid) for a number out of range.
strategies::StrategyOptions strategy_options(const TrainFlags& f);
// Returns the strategy. The session must outlive it.
std::unique_ptr<engine::Strategy> choose_strategy(const TrainFlags& f, strategies::Session& session,
                                                  const Cluster& cluster,
                                                  const strategies::StrategyOptions& options);

}  // namespace lockstep::tools
