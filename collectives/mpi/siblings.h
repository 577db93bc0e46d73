// SPDX-License-Identifier: MIT
// Finds the processes of this job on this host before MPI can tell. They are children of the same
// launcher (mpirun, orted, slurmstepd), which wrote job and rank into their environment. A wrapper
// script between launcher and program counts as its program. Reads a few files of /proc for each
// child of the launcher. Thread-safe. Never fails: a process with unreadable files is not seen.
// Linux only.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace lockstep::collectives::mpi {

struct Sibling {
  int rank = -1, pid = 0;
  auto operator<=>(const Sibling&) const = default;
};

// Returns the rank of this process, as its launcher set it.
std::optional<int> rank_here();

struct Family {
  std::vector<Sibling> siblings;  // other live processes, ascending
  // True if the launcher was found, sleeps, and has no child that may still belong to this job
  // (just forked, or unreadable). Then a process that is missing will not come.
  bool settled = false;
};
Family look_for_family();

// Returns "rank 2 (pid 1234) is stopped; kill -CONT 1234 lets it go on" for all siblings that a
// signal or a debugger stopped, or an empty text.
std::string stopped_siblings();

}  // namespace lockstep::collectives::mpi
