// SPDX-License-Identifier: MIT
// What a program opens once: the devices of this machine, who started this process, and, when a
// strategy of several processes asks for it, MPI. No globals: several sessions, one after the
// other, are fine, except that MPI can be ended only once in a process.
//
// One thread owns it; it outlives the strategies made from it. The end of a session is orderly (all
// processes meet, MPI ends) unless an error is on its way out or `abandon` was called: then peers
// may be gone, and nothing waits for them.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "collectives/bootstrap/bootstrap.h"
#include "collectives/job/network.h"
#include "collectives/mpi/mpi_bootstrap.h"
#include "collectives/mpi/start_watch.h"
#include "engine/base/log.h"
#include "engine/device/device.h"
#include "engine/runtime/devices.h"
#include "engine/runtime/profilers.h"

namespace lockstep::strategies {

struct SessionOptions {
  std::chrono::milliseconds deadline{60000};  // of finding the other processes
  collectives::Network network = {};          // how messages travel between hosts
  // False: whatever launcher started this process, it has nothing to do with others of it, and no
  // MPI. So is a task that a supervisor started (supervisor.h).
  bool launched = true;
  engine::DeviceOptions gpus = {};
  engine::Log log = engine::Log();
};

class ProcessorWatch;

using MpiCommunicator = collectives::mpi::Communicator;

class Session {
 public:
  // argc and argv are the program's, so that messages can name it. Throws Error(kInvalid) for a
  // network that cannot be, and in one of several processes of a launcher that cannot join them
  // (require_known_launcher), unless TF_CONFIG does.
  Session(int argc, char** argv, SessionOptions options = {});
  // For a program that has called MPI_Init itself: on a communicator of its choice, which this
  // process belongs to. Collective over it. The session neither starts nor ends MPI, and ends
  // before MPI_Finalize is called.
  //   lockstep::Session session(lockstep::MpiCommunicator{MPI_Comm_c2f(part)});
  explicit Session(MpiCommunicator communicator, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Those whose memory is the host's.
  const std::vector<std::unique_ptr<engine::Device>>& devices() const { return devices_; }
  // "cpu", "cuda:0"; Error(kInvalid) lists what there is. The first time that one is asked for,
  // GPUs are looked for: a tenth of a second or more.
  engine::Device& device(const std::string& name);
  // Those that this process sees and can use; also looks for them.
  std::vector<engine::Device*> gpus();
  // How much of their memory this process has used at most, of those that it has used: a line each.
  std::vector<std::string> memory_of_gpus() const;
  const collectives::mpi::Launch& launch() const { return launch_; }
  // The processes of this job: MPI's where a launcher started several, else this one. Starts MPI.
  collectives::Bootstrap& bootstrap();
  // From now on library threads sleep while they wait where processors are too few, and a warning
  // says where other programs take them (processor_watch.h). `threads`: of all processes of the job
  // on this host, `of_replica` each. The last call counts.
  void watch_processors(int of_replica, int threads);
  // All processes know each other and watch over each other: starting has ended.
  void connected();
  // That which has started this process and looks at it, such as Nsight Systems; mostly null. It is
  // told of the parts of steps by the strategies made from this session.
  engine::Profiler* profiler() const { return profiler_.get(); }
  const collectives::Network& network() const { return options_.network; }
  const engine::Log& log() const { return options_.log; }
  const std::string& program() const { return program_; }
  char** arguments() const { return arguments_; }  // null: of a session on a communicator
  void abandon() { abandoned_ = true; }

 private:
  SessionOptions options_;
  std::string program_;
  char** arguments_ = nullptr;
  collectives::mpi::Launch launch_;
  std::unique_ptr<engine::Profiler> profiler_ = engine::profiler();
  std::vector<std::unique_ptr<engine::Device>> devices_;
  std::vector<std::unique_ptr<engine::Device>> all_devices_;  // with GPUs, once one was asked for
  std::unique_ptr<collectives::mpi::StartWatch> start_watch_;
  std::unique_ptr<ProcessorWatch> processor_watch_;
  std::unique_ptr<collectives::Bootstrap> bootstrap_;
  bool abandoned_ = false, connected_ = false;
  int exceptions_ = 0;  // on their way when the session was made
};

// Its end says that starting has ended, once a strategy watches over its peers or has failed to.
struct Connected {
  Session& session;
  ~Connected() { session.connected(); }
};

}  // namespace lockstep::strategies
