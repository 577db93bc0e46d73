// SPDX-License-Identifier: MIT
// Runs `lockstep bench --scaling` and prints the table of scaling.h, a line per number of ranks.
// Threads run as 1, 2, 4, ... ranks. Processes run each alone, at the same time, and then all
// together. Rank 0 prints.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "collectives/topology/topology.h"
#include "strategies/session/session.h"
#include "tools/bench/rank.h"
#include "tools/bench/row.h"
#include "tools/bench/scaling.h"

namespace lockstep::tools::bench {

struct ScalingFlags {
  double compute_ms = 350;
  int batch = 128;
  std::string links;  // names a topology; empty: this machine's
};

class ScalingRuns {
 public:
  using Costs = std::function<collectives::Topology(const Rank&)>;
  // Sets up the runs. `bytes`: size of all gradients; 0: those of ResNet-50. `costs`: returns the
  // costs of this job's ranks; it is collective, and every rank calls it.
  ScalingRuns(const ScalingFlags& flags, std::size_t bytes, const Setting& setting, Form form,
              Costs costs);
  // Returns the ranks of --links, at most kMostThreads; 0 if the flag is not given.
  int ranks_of_links() const { return links_ ? int(links_->ranks.size()) : 0; }

  // Returns whether every sum was right.
  bool threads(int count, strategies::Session& session, std::chrono::milliseconds deadline);
  bool processes(const Rank& rank);

 private:
  Scaling run(const Rank& rank);
  std::size_t elements() const;  // elements of all gradients
  void require_gradients(const Rank& rank, bool threads) const;
  void tell_task() const;
  bool tell(const Scaling& scaling);
  void tell_end() const;

  Setting setting_;
  Form form_;
  Costs costs_;
  ScalingTask task_;
  std::optional<collectives::Topology> links_;
  std::string links_name_;
  std::optional<Scaling> alone_;
};

}  // namespace lockstep::tools::bench
