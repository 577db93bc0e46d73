// SPDX-License-Identifier: MIT
#include "strategies/memory_use.h"

#include <algorithm>

#include "collectives/machine.h"
#include "engine/base/error.h"

namespace lockstep::strategies {
namespace {

// What the libraries take once the first step has run and cannot be asked for before: their code
// and tables, once, and what they make for each replica. Measured: README.md.
constexpr std::size_t kLibraries = std::size_t(5) << 20;
constexpr std::size_t kLibrariesOfReplica = std::size_t(512) << 10;

double in_mebibytes(std::size_t bytes) {
  return double(bytes) / 0x1p20;
}

}  // namespace

MemoryRoom memory_room(std::size_t processes) {
  return {collectives::process_memory(), collectives::available_memory(processes)};
}

std::size_t MemoryUse::added() const {
  std::size_t sum = 0;
  for (const Part& part : parts) sum += part.bytes;
  return sum;
}

MemoryUse memory_use(const engine::GraphMemory& graph, std::size_t replicas, std::size_t arenas,
                     std::size_t slots, std::size_t batches) {
  MemoryUse use;
  use.graph = graph;
  use.parts = {{"activations", graph.bytes * replicas},
               {"weights and gradients", arenas},
               {"the optimizer's state", slots},
               {"batches read ahead", batches},
               {"kernels", graph.kernels * replicas},
               {"libraries", kLibraries + kLibrariesOfReplica * replicas}};
  std::erase_if(use.parts, [](const MemoryUse::Part& part) { return part.bytes == 0; });
  std::ranges::stable_sort(use.parts, std::ranges::greater(), &MemoryUse::Part::bytes);
  return use;
}

std::string sentence(const MemoryUse& use, const MemoryRoom& room) {
  std::string text = fmt::format("memory: {:.1f} MiB a process: {:.1f} the program and its data",
                                 in_mebibytes(room.taken + use.added()), in_mebibytes(room.taken));
  for (const MemoryUse::Part& part : use.parts) {
    text += fmt::format(", {:.1f} {}", in_mebibytes(part.bytes), part.name);
  }
  return text;
}

void require_memory(const MemoryRoom& room, std::size_t limit, std::size_t batch,
                    const std::function<MemoryUse(std::size_t batch)>& use_of) {
  std::size_t most = room.available;
  const bool limited = limit > 0 && (limit <= room.taken || limit - room.taken < most);
  if (limited) most = limit - std::min(limit, room.taken);
  const MemoryUse use = use_of(batch);
  if (use.added() <= most) return;
  std::size_t fits = 0;  // the largest batch known to fit, and below `over`, which does not
  for (std::size_t over = batch; over - fits > 1;) {
    const std::size_t middle = fits + (over - fits) / 2;
    (use_of(middle).added() <= most ? fits : over) = middle;
  }
  const MemoryUse::Part& largest = use.parts.front();
  const std::string bound =
      limited ? fmt::format("the memory limit is {:.1f} MiB, and {:.1f} are taken already",
                            in_mebibytes(limit), in_mebibytes(room.taken))
              : fmt::format("{:.1f} MiB are free", in_mebibytes(most));
  engine::fail(engine::Code::kMemory,
               "batch {} needs {:.1f} MiB more in each process, {:.1f} of it {}, and {}; the "
               "largest tensor is {} ({:.1f} MiB); {}",
               batch, in_mebibytes(use.added()), in_mebibytes(largest.bytes), largest.name, bound,
               use.graph.largest, in_mebibytes(use.graph.largest_bytes),
               fits > 0 ? fmt::format("the largest batch that fits is {}", fits) : "no batch fits");
}

}  // namespace lockstep::strategies
