// SPDX-License-Identifier: MIT
// Watches the processes of this host until the first exchange of pids. If one of them dies before
// that and the launcher keeps the others alive (mpirun --enable-recovery), they would wait in
// MPI_Init forever. A death ends this process with one line, "rank 2 (pid 1234) died while the job
// was starting", and exit code 75. If a process died before it was seen, this process ends one
// second after the launcher has started all. If another rank is stopped, the line names that rank
// instead. Deaths on other hosts are not seen here: MPI_Init's deadline ends those jobs.
//
// Create it before MPI starts, and release it when the processes know each other's pids. It has two
// threads.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::collectives::mpi {

// The place of this process in its job, as the launcher says.
struct Place {
  int rank = 0, size = 1;
  int local_size = 1;  // processes on this host
};

class StartWatch {
 public:
  // Callback on a thread of the watch; by default `leave`. It must not throw.
  using Lost = std::function<void(const std::string& what)>;
  explicit StartWatch(Place here, Lost lost = {},
                      std::chrono::milliseconds timeout = std::chrono::seconds(1));
  ~StartWatch();  // releases
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives::mpi
