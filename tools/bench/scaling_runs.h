// SPDX-License-Identifier: MIT
// `lockstep bench --scaling`: the table of scaling.h, a line for each number of ranks. Threads: 1,
// 2, 4, ... of them; processes: each alone, at once, then all. Rank 0 prints.
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
  // `bytes`: of all gradients, where they are not ResNet-50's; `costs`: of the ranks of this job,
  // collective, on each of them.
  ScalingRuns(const ScalingFlags& flags, std::size_t bytes, const Setting& setting, Form form,
              Costs costs);
  // Ranks that --links has; 0: it is not given. At most kMostThreads.
  int ranks_of_links() const { return links_ ? int(links_->ranks.size()) : 0; }

  // True when every sum was right.
  bool threads(int count, strategies::Session& session, std::chrono::milliseconds deadline);
  bool processes(const Rank& rank);

 private:
  Scaling run(const Rank& rank);
  std::size_t elements() const;  // of all gradients
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
