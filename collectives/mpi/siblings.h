// SPDX-License-Identifier: MIT
// The processes of this job on this host, found before MPI can tell: they are children of the same
// launcher (mpirun, orted, slurmstepd), and the launcher wrote job and rank into their environment.
// A wrapper script between launcher and program stands for its program. Reads a few files of /proc
// for each child of the launcher; any thread; never fails: what cannot be read is not seen. Linux.
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
  std::vector<Sibling> siblings;  // the others that live, ascending
  // The launcher has been found, sleeps, and has no child of which it is unknown whether it belongs
  // to this job (just forked, or not readable): whoever is missing now will not come any more.
  bool settled = false;
};
Family look_for_family();

// "rank 2 (pid 1234) is stopped; kill -CONT 1234 lets it go on", of those that a signal or a
// debugger stopped; empty where none is.
std::string stopped_siblings();

}  // namespace lockstep::collectives::mpi
