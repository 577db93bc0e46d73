// SPDX-License-Identifier: MIT
// The processes that mpirun started, as PMIx describes them: this process's rank, their number, and
// an exchange of one text per process. MPI is not initialized: its finalization waits for all
// processes, and a lost process would end the job. No PMIx type appears here; a build without PMIx
// uses absent.cpp.
//
// A process that the launcher restarts would be a new process for PMIx. Therefore a supervisor
// (strategies/session/supervisor.h), which does not restart, takes part in the exchange and passes
// the results to its task.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::strategies::pmix {

bool available();       // built with PMIx
std::string version();  // "4.2.2"; empty if unavailable

// Represents the process's membership in the PMIx job. A process has one at a time, used by one
// thread. PMIx runs its own thread meanwhile, which blocks the signals that were blocked at
// creation.
class Exchange {
 public:
  // Reports an orderly end to the launcher. Otherwise mpirun takes the end of this process for a
  // failure of the job.
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int host_size() const = 0;  // processes of the job on this host
  // Returns the `mine` of all processes, by rank. Each process calls it once per `name`; the calls
  // need not overlap. A text has at most 64 KiB. Throws Error(kTimeout) with the ranks whose text
  // had not arrived at the deadline. They may arrive later, so the call may be repeated with the
  // same text. Throws Error(kInvalid) if the text is empty or too long, and Error(kIo) with PMIx's
  // message.
  virtual std::vector<std::string> all(const std::string& name, const std::string& mine,
                                       engine::Clock::time_point deadline) = 0;
};

// Throws Error(kInvalid) if this build has no PMIx, and says how to get it. Throws Error(kInvalid)
// if no launcher with PMIx started this process, and Error(kIo) with PMIx's message.
std::unique_ptr<Exchange> join();

}  // namespace lockstep::strategies::pmix
