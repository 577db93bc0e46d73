// SPDX-License-Identifier: MIT
#include "tools/bench/room.h"

#include <fmt/core.h>

#include <fstream>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"

namespace lockstep::tools::bench {
namespace {

// Mappings that each rank has of every other rank: the flags of a meeting, and the timed memory.
// Reproducible sums add a second communicator's memory and its slots.
constexpr std::size_t kPieces = 2, kReproduciblePieces = 5;
constexpr std::size_t kOthers = 2000;  // libraries and thread stacks

}  // namespace

void require_mappings(int ranks, bool reproducible) {
  std::size_t most = 0;
  if (!(std::ifstream("/proc/sys/vm/max_map_count") >> most)) return;
  const std::size_t pieces = reproducible ? kReproduciblePieces : kPieces;
  const auto wanted = [pieces](std::size_t n) { return pieces * n * (n + 1) + kOthers; };
  if (wanted(std::size_t(ranks)) <= most) return;
  int fit = ranks;
  while (fit > 1 && wanted(std::size_t(fit)) > most) --fit;
  engine::fail(engine::Code::kMemory,
               "{} ranks of one process map each other's memory some {} times, and the system "
               "allows {} (vm.max_map_count): --ranks {} at most",
               ranks, wanted(std::size_t(ranks)), most, fit);
}

void require_room(const Rank& rank, bool threads, std::size_t bytes, const std::string& what) {
  const std::size_t here = rank.job.ranks().local().size();
  const std::size_t free = collectives::available_memory(threads ? 1 : here);
  const std::size_t mine = threads ? here * bytes : bytes;  // needed by this process
  std::string refusal;
  if (mine > free) {
    const auto text = [](std::size_t number) { return engine::bytes_text(double(number)); };
    refusal = fmt::format(
        "{} needs {} for the {} of a host (input, output and scratch of each), and {} are free",
        what, text(here * bytes), engine::count_text(here, "rank"),
        text(threads ? free : here * free));
  }
  // Other processes may see more free memory, but all must report the same error.
  for (const std::string& one : rank.job.bootstrap().all_gather(refusal, "room for the benchmark"))
    if (!one.empty()) throw engine::Error(engine::Code::kMemory, one);
}

}  // namespace lockstep::tools::bench
