// SPDX-License-Identifier: MIT
// Holds the part of a parameter server strategy that only the chief has. Owned by the strategy.
#pragma once
#include <functional>
#include <string>
#include <utility>

#include "strategies/parameter_server/worker/parameter_server.h"
#include "strategies/parameter_server/worker/scheduler.h"
#include "strategies/parameter_server/worker/server_watch.h"
#include "strategies/parameter_server/worker/servers.h"

namespace lockstep::strategies {

struct ParameterServer::Chief {
  // Calls `failed` if the loss of servers ends training.
  Chief(const SchedulerOptions& of_scheduler, Servers::Connections connections,
        const ParameterServerOptions& options, std::function<void(const engine::Error&)> failed)
      : scheduler(of_scheduler),
        servers(std::move(connections), options.container, options.deadline),
        watch(servers,
              {options.container, options.updates.synchronous, options.poll_interval, options.log},
              std::move(failed)) {}

  Scheduler scheduler;
  Servers servers;
  ServerWatch watch;
  // The wait for other processes after `open` is over.
  bool waited = true;
  bool leading = false;                                // during a call of `fit`
  std::string why_failed = "its program ended early";  // for the others if `fit` fails
};

}  // namespace lockstep::strategies
