// SPDX-License-Identifier: MIT
#include "strategies/synchronous/memory_use.h"

#include <algorithm>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"

namespace lockstep::strategies {
namespace {

// Memory that libraries allocate in the first step and that cannot be queried before: their code
// and tables, once, and their data per replica, as measured.
constexpr std::size_t kLibraries = std::size_t(5) << 20;
constexpr std::size_t kLibrariesOfReplica = std::size_t(512) << 10;

std::string memory_text(std::size_t bytes) {
  return engine::bytes_text(double(bytes));
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
  std::string text = fmt::format("memory: {} per process: {} for the program and its data",
                                 memory_text(room.taken + use.added()), memory_text(room.taken));
  for (const MemoryUse::Part& part : use.parts) {
    text += fmt::format(", {} for {}", memory_text(part.bytes), part.name);
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
  // The largest batch that is known to fit; `over` does not fit.
  std::size_t fits = 0;
  for (std::size_t over = batch; over - fits > 1;) {
    const std::size_t middle = fits + (over - fits) / 2;
    (use_of(middle).added() <= most ? fits : over) = middle;
  }
  const MemoryUse::Part& largest = use.parts.front();
  const std::string bound = limited ? fmt::format("the memory limit is {}, of which {} are in use",
                                                  memory_text(limit), memory_text(room.taken))
                                    : fmt::format("only {} are free", memory_text(most));
  engine::fail(
      engine::Code::kMemory,
      "batch {} needs {} more in each process ({} of it for {}), but {}; the largest tensor "
      "is {} ({}); {}",
      batch, memory_text(use.added()), memory_text(largest.bytes), largest.name, bound,
      use.graph.largest, memory_text(use.graph.largest_bytes),
      fits > 0 ? fmt::format("the largest batch that fits is {}", fits) : "no batch fits");
}

}  // namespace lockstep::strategies
