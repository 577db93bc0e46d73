// SPDX-License-Identifier: MIT
// The processes that mpirun started, as PMIx tells it: who this one is, how many there are, and a
// text from each to all. MPI is not started: its end waits for all, and a process that it lost
// would be the end of the job. No type of PMIx is seen here; a build without it has absent.cpp.
//
// A process that dies and is started again by the launcher would be another one for PMIx, so who
// exchanges is a supervisor (strategies/session/supervisor.h), which stays, and hands on to its
// task what it got.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::strategies::pmix {

bool available();       // built with PMIx
std::string version();  // "4.2.2"; empty where not available

// One at a time in a process, in one thread. PMIx has a thread of its own meanwhile, which takes no
// signals that were blocked when it was made.
class Exchange {
 public:
  // Tells the launcher that this process ends orderly: without that mpirun takes its end for a
  // failure of the job.
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int host_size() const = 0;  // processes of the job on this host
  // Gives each process's `mine` to all, by rank. Once for each `name`, in every process; they need
  // not all be there at once. At most 64 KiB. Throws Error(kTimeout) naming the ranks whose text
  // had not come at the deadline (they may come later: the same call may be repeated with the same
  // text), Error(kInvalid) for an empty or too long text, Error(kIo) with what PMIx said.
  virtual std::vector<std::string> all(const std::string& name, const std::string& mine,
                                       engine::Clock::time_point deadline) = 0;
};

// Throws Error(kInvalid) where PMIx is not available, saying what would give it, or where no
// launcher that speaks PMIx started this process; Error(kIo) with what PMIx said.
std::unique_ptr<Exchange> join();

}  // namespace lockstep::strategies::pmix
