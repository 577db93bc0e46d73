// SPDX-License-Identifier: MIT
// A process of mpirun as the supervisor of its task in a parameter server job: it takes a port,
// tells it to the other processes (strategies/pmix), and starts this program again as the task,
// which finds the cluster and who it is in TF_CONFIG, as if somebody had started it by hand. A task
// that is killed is started again at the same address; the chief is not: its job ends with it.
//
//   if (!supervised() && session_was_launched) return run_launched_task(argv, {.servers = 2});
//   const ClusterConfig cluster = parse_tf_config(getenv("TF_CONFIG"), ...);
//
// MPI is not touched. mpirun ends the whole job when a supervisor ends with another code than 0,
// and that becomes its own code; with --enable-recovery it does not. So that it is the chief's
// where that is what failed, a supervisor whose task ended with kTryAgain gives the chief's 10
// seconds to end first.
#pragma once
#include <chrono>
#include <string>

#include "engine/base/log.h"
#include "strategies/grpc/tls_files.h"

namespace lockstep::strategies {

// The exit code of a task that ends because another process failed; sysexits.h: try again.
inline constexpr int kTryAgain = 75;

struct LaunchedOptions {
  int servers = 1;   // the last ranks; rank 0 is the chief
  int restarts = 3;  // of each task but the chief's
  // Of this process's address: of that network interface, "eth1". Empty: 127.0.0.1 where all
  // processes are on this host, else its name, or, where it calls itself by that a loopback address
  // (so installers write /etc/hosts), its first other address.
  std::string interface = {};
  std::chrono::milliseconds deadline{60000};  // until all processes are there
  grpc::TlsFiles tls = {};                    // of the tasks: by them the others hear of a
  bool insecure = false;                      // chief that was killed
  engine::Log log = engine::Log();
};

// The task's exit code. From the thread that is the program's first, before there are others.
// Throws Error(kInvalid) where ranks and servers do not fit, in a build without PMIx, and where
// nobody launched this process; Error(kTimeout) naming the ranks that did not come; and what
// Supervisor::run throws.
int run_launched_task(char** argv, const LaunchedOptions& options);

}  // namespace lockstep::strategies
