// SPDX-License-Identifier: MIT
// Between its first line and the first exchange of pids a job is blind: when one of its processes
// dies then, and the launcher keeps the others alive (mpirun --enable-recovery), they wait in
// MPI_Init for ever. This watches the processes of this host in that time. A death ends this
// process with one line, "rank 2 (pid 1234) died while the job was starting", and exit code 75; so
// does one that died before it could be seen, a second after the launcher has started all it had to
// start. Where another rank is stopped that one is named instead. Deaths on other hosts are not
// seen here: MPI_Init's deadline ends those.
//
// Made before MPI starts; released when the processes know each other's pids. Two threads of its
// own.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace lockstep::collectives::mpi {

class StartWatch {
 public:
  // Called on a thread of the watch; by default `leave`. Must not throw.
  using Lost = std::function<void(const std::string& what)>;
  explicit StartWatch(Lost lost = {}, std::chrono::milliseconds timeout = std::chrono::seconds(1));
  ~StartWatch();  // releases
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;
  void release();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::collectives::mpi
