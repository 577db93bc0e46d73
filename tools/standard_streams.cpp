// SPDX-License-Identifier: MIT
#include "tools/standard_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <system_error>

#include "engine/base/error.h"

namespace lockstep::tools {

void print(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0)
    return;
  if (errno == EPIPE)
    engine::fail(engine::Code::kIo,
                 "the reader of standard output has closed it; the rest of the "
                 "result is lost");
  engine::fail(engine::Code::kIo, "standard output cannot be written: {}; the result is lost",
               std::generic_category().message(errno));
}

void never_wait_for_standard_error() {
  struct stat status {};
  if (::fstat(STDERR_FILENO, &status) != 0) return;
  if (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode)) return;
  const int own = ::open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (own < 0) return;
  ::dup2(own, STDERR_FILENO);
  ::close(own);
}

void ignore_write_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace lockstep::tools
