// SPDX-License-Identifier: MIT
#include "tools/leaving.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include "collectives/mpi/mpi_bootstrap.h"

namespace lockstep::tools {
namespace {

constexpr timespec kPatience{5, 0};  // for the launcher, which may leave this process alone

// mpirun can start several programs with flags of their own as one job; then each speaks for
// itself.
bool one_command_line() {
  const char* contexts = std::getenv("OMPI_NUM_APP_CTX");
  return contexts == nullptr || std::string_view(contexts) == "1";
}

}  // namespace

void complain(const std::string& text) {
  std::string line = fmt::format("lockstep: {}", text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  std::fputs((line + "\n").c_str(), stderr);
}

void leave(int code) {
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(code);
}

void leave_together(int code, const std::string& text, bool each_host) {
  const collectives::mpi::Launch launch = collectives::mpi::launch();
  const bool silent = launch.present && one_command_line() &&
                      (each_host ? launch.local_rank != 0 : launch.rank != 0);
  if (silent) {
    sigset_t end;
    sigemptyset(&end);
    sigaddset(&end, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &end, nullptr);
    sigtimedwait(&end, nullptr, &kPatience);
    leave(code);
  }
  complain(text);
  leave(code);
}

}  // namespace lockstep::tools
