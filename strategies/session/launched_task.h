// SPDX-License-Identifier: MIT
// An mpirun process that supervises its task in a parameter server job. It reserves a port, tells
// it to the other processes (strategies/pmix) and starts this program again as the task. The task
// gets the cluster and its role from TF_CONFIG, as if a user had started it. A killed task is
// restarted at the same address. A killed chief is not: the job ends with it.
//
//   if (!supervised() && session_was_launched) return run_launched_task(argv, {.servers = 2});
//   const ClusterConfig cluster = parse_tf_config(getenv("TF_CONFIG"), ...);
//
// MPI is not used. Without --enable-recovery, mpirun ends the whole job if a supervisor exits with
// another code than 0, and returns that code. To make it the chief's code if the chief failed, a
// supervisor whose task exited with kTryAgain first gives the chief's 10 seconds to exit.
#pragma once
#include <chrono>
#include <string>

#include "engine/base/log.h"
#include "strategies/grpc/tls_files.h"

namespace lockstep::strategies {

// The exit code of a task that ends because another process failed (sysexits.h: try again).
inline constexpr int kTryAgain = 75;

struct LaunchedOptions {
  int servers = 1;   // the last ranks; rank 0 is the chief
  int restarts = 3;  // per task, except the chief's
  // Network interface of this process's address, "eth1". Default: 127.0.0.1 if all processes are on
  // this host, else the host's name. If the host resolves its name to a loopback address (as
  // installers write /etc/hosts), its first other address is used.
  std::string interface = {};
  std::chrono::milliseconds deadline{60000};  // for all processes to arrive
  // Used by the tasks, and to report a killed chief to them.
  grpc::TlsFiles tls = {};
  bool insecure = false;
  engine::Log log = engine::Log();
};

// Runs the task and returns its exit code. Call it on the program's first thread, before others
// exist. Throws Error(kInvalid) if ranks and servers do not match, in a build without PMIx, and if
// no launcher started this process. Throws Error(kTimeout) with the ranks that did not arrive, and
// the errors of Supervisor::run.
int run_launched_task(char** argv, const LaunchedOptions& options);

}  // namespace lockstep::strategies
