// SPDX-License-Identifier: MIT
// The resources that a program opens once: the devices of this machine, the launcher's information
// and, if a strategy of several processes needs it, MPI. There are no globals. Several sessions may
// follow each other, except that MPI can be finalized only once per process.
//
// Not thread-safe; the session must outlive its strategies. At its end all processes synchronize
// and MPI is finalized. If an exception is in flight or `abandon` was called, it does not wait,
// since peers may be gone.
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
#include "strategies/session/launch.h"

namespace lockstep::strategies {

struct SessionOptions {
  std::chrono::milliseconds deadline{60000};  // of waits; pods wait 10 min at first
  collectives::Network network = {};          // transport between hosts
  // True: a job on several hosts may start without a secret, and then anybody can join.
  bool insecure = false;
  // False: the process is independent of any launcher and does not use MPI. The same holds for a
  // task of a supervisor (supervisor.h).
  bool launched = true;
  engine::DeviceOptions gpus = {};
  engine::Log log = engine::Log();
};

class ProcessorWatch;

using MpiCommunicator = collectives::mpi::Communicator;

class Session {
 public:
  // Takes the program's argc and argv, so that messages can name it. Throws Error(kInvalid) if the
  // network is invalid. Also throws if a launcher started several processes that this one cannot
  // join (require_known_launcher), unless TF_CONFIG describes them.
  Session(int argc, char** argv, SessionOptions options = {});
  // For a program that has called MPI_Init itself: uses a communicator to which this process
  // belongs. Collective over it. The session neither initializes nor finalizes MPI and must end
  // before MPI_Finalize.
  //   lockstep::Session session(lockstep::MpiCommunicator{MPI_Comm_c2f(part)});
  explicit Session(MpiCommunicator communicator, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Returns the devices that use host memory.
  const std::vector<std::unique_ptr<engine::Device>>& devices() const { return devices_; }
  // Returns a device by its name: "cpu", "cuda:0". Throws Error(kInvalid) that lists the existing
  // devices. The first request for a GPU searches for GPUs, which takes a tenth of a second or
  // more.
  engine::Device& device(const std::string& name);
  // Returns the GPUs that this process sees and can use; may search for them.
  std::vector<engine::Device*> gpus();
  // Returns one line per used GPU with the peak memory use of this process.
  std::vector<std::string> memory_of_gpus() const;
  // Returns this process's place in the job. The places on the host count after `bootstrap`.
  const Launch& launch() const { return launch_; }
  // Returns the processes of this job. The first call lets them meet, by MPI or at the first
  // process (launch.h). Throws Error(kTimeout), which names the missing processes, and
  // Error(kInvalid) if they need a secret (job_secret.h).
  collectives::Bootstrap& bootstrap();
  // Makes library threads sleep while they wait if processors are too few, and warns if other
  // programs use them (processor_watch.h). `threads`: of all processes of the job on this host,
  // with `of_replica` per replica. The last call counts.
  void watch_processors(int of_replica, int threads);
  // Marks the end of the start: all processes know and monitor each other.
  void connected();
  // Returns the attached profiler, such as Nsight Systems; usually null. Strategies of this session
  // report the parts of steps to it.
  engine::Profiler* profiler() const { return profiler_.get(); }
  const collectives::Network& network() const { return options_.network; }
  const engine::Log& log() const { return options_.log; }
  const std::string& program() const { return program_; }
  char** arguments() const { return arguments_; }  // null if made from a communicator
  void abandon() { abandoned_ = true; }

 private:
  std::unique_ptr<collectives::Bootstrap> meet();
  SessionOptions options_;
  std::string program_;
  char** arguments_ = nullptr;
  Launch launch_;
  std::unique_ptr<engine::Profiler> profiler_ = engine::profiler();
  std::vector<std::unique_ptr<engine::Device>> devices_;
  std::vector<std::unique_ptr<engine::Device>> all_devices_;  // with GPUs, after the first request
  std::unique_ptr<collectives::mpi::StartWatch> start_watch_;
  std::unique_ptr<ProcessorWatch> processor_watch_;
  std::unique_ptr<collectives::Bootstrap> bootstrap_;
  bool abandoned_ = false, connected_ = false;
  int exceptions_ = 0;  // in flight at construction
};

// Calls `connected` at its end, when a strategy monitors its peers or has failed.
struct Connected {
  Session& session;
  ~Connected() { session.connected(); }
};

}  // namespace lockstep::strategies
