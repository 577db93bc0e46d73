// SPDX-License-Identifier: MIT
#include "collectives/mpi/siblings.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace lockstep::collectives::mpi {
namespace {

namespace fs = std::filesystem;

// Identifies a process by what the launcher wrote: the job and the rank in it.
struct Identity {
  std::string job;
  int rank = -1;
};

std::string process_file(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream out;
  if (in) out << in.rdbuf();
  return out.str();
}

// Returns the value of a variable in `environment`, "A=1\0B=2\0", or an empty text if it is not
// set.
std::string_view variable_in(std::string_view environment, const std::string& name) {
  const std::string wanted = name + "=";
  for (std::size_t at = 0; at < environment.size();) {
    const std::size_t end = std::min(environment.find('\0', at), environment.size());
    const std::string_view entry = environment.substr(at, end - at);
    if (entry.substr(0, wanted.size()) == wanted) return entry.substr(wanted.size());
    at = end + 1;
  }
  return {};
}

std::optional<Identity> identity_in(std::string_view environment) {
  Identity found;
  found.job = std::string(variable_in(environment, "PMIX_NAMESPACE")) + "/" +
              std::string(variable_in(environment, "OMPI_COMM_WORLD_SIZE"));
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}) {
    const std::string_view text = variable_in(environment, name);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), found.rank);
    if (error == std::errc() && end == text.data() + text.size() && found.rank >= 0) return found;
  }
  return std::nullopt;
}

std::string environment_of(int pid) {
  return process_file(fmt::format("/proc/{}/environ", pid));
}

// Returns what the launcher set, as the kernel keeps it. getenv must not run beside MPI_Init, which
// changes the environment.
std::optional<Identity> identity_here() {
  return identity_in(environment_of(getpid()));
}

struct Status {
  char state = '?';  // R, S, D, Z, ...
  int parent = 0;
};

// Parses "22702 (name) S 22697 ...". The name may hold anything, so parsing begins behind it.
std::optional<Status> status_of(int pid) {
  const std::string text = process_file(fmt::format("/proc/{}/stat", pid));
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  Status status;
  std::istringstream rest(text.substr(end + 1));
  if (!(rest >> status.state >> status.parent)) return std::nullopt;
  return status;
}

std::string program_of(int pid) {
  std::error_code ignored;
  return fs::read_symlink(fmt::format("/proc/{}/exe", pid), ignored).string();
}

std::vector<int> children_from_status(int parent) {
  std::vector<int> children;
  std::error_code ignored;
  for (fs::directory_iterator i("/proc", ignored), end; !ignored && i != end;
       i.increment(ignored)) {
    const std::string name = i->path().filename();
    int pid = 0;
    const auto [last, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || last != name.data() + name.size()) continue;
    const auto status = status_of(pid);
    if (status && status->parent == parent) children.push_back(pid);
  }
  return children;
}

// Returns the children of a process, from the kernel's list of each thread if it keeps one.
std::vector<int> children_of(int parent) {
  std::vector<int> children;
  std::error_code ignored;
  bool listed = false;
  const std::string tasks = fmt::format("/proc/{}/task", parent);
  for (fs::directory_iterator i(tasks, ignored), end; !ignored && i != end; i.increment(ignored)) {
    std::ifstream in(i->path() / "children");
    listed = listed || in.is_open();
    for (int pid = 0; in >> pid;) children.push_back(pid);
  }
  return listed ? children : children_from_status(parent);
}

// Returns the process that is stopped: `pid`, or one that a wrapper script started.
std::optional<int> stopped_process(int pid) {
  const auto status = status_of(pid);
  if (!status) return std::nullopt;
  if (status->state == 'T' || status->state == 't') return pid;
  for (const int child : children_of(pid))
    if (const auto stopped = stopped_process(child)) return stopped;
  return std::nullopt;
}

}  // namespace

std::optional<int> rank_here() {
  const auto here = identity_here();
  return here ? std::optional(here->rank) : std::nullopt;
}

std::string stopped_siblings() {
  std::string text;
  for (const Sibling& sibling : look_for_family().siblings) {
    const auto stopped = stopped_process(sibling.pid);
    if (!stopped) continue;
    text += fmt::format("{}rank {} (pid {}) is stopped; kill -CONT {} lets it go on",
                        text.empty() ? "" : "; ", sibling.rank, *stopped, *stopped);
  }
  return text;
}

// Walks up from this process to the first parent that is not part of this rank, which is the
// launcher. `stem` is the launcher's child from which this process descends. Then visits the other
// children.
Family look_for_family() {
  Family family;
  const auto me = identity_here();
  if (!me) return family;
  int stem = int(getpid()), launcher = int(getppid());
  while (launcher > 1) {
    const auto theirs = identity_in(environment_of(launcher));
    if (!theirs || theirs->job != me->job || theirs->rank != me->rank) break;
    const auto status = status_of(launcher);
    if (!status) return family;
    stem = launcher;
    launcher = status->parent;
  }
  const auto status = status_of(launcher);
  if (launcher <= 1 || !status) return family;
  const std::string program = program_of(launcher);
  bool known = status->state == 'S', found_stem = false;
  for (const int child : children_of(launcher)) {
    if (child == stem) {
      found_stem = true;
      continue;
    }
    const std::string environment = environment_of(child);
    const auto theirs = identity_in(environment);
    const auto life = status_of(child);
    if (!life || life->state == 'Z' || life->state == 'X') continue;
    if (theirs && theirs->job == me->job) {
      if (theirs->rank != me->rank) family.siblings.push_back({theirs->rank, child});
    } else if (environment.empty() || program_of(child) == program) {
      known = false;
    }
  }
  std::sort(family.siblings.begin(), family.siblings.end());
  family.settled = known && found_stem;
  return family;
}

}  // namespace lockstep::collectives::mpi
