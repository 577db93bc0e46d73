// SPDX-License-Identifier: MIT
#include "engine/cuda/lane.h"

#include <cstdint>
#include <utility>

namespace lockstep::engine::cuda {

Lane::Lane(const GpuParts& gpu, LaneLibraries libraries, bool urgent)
    : stream(gpu.context, urgent),
      products(std::move(libraries.products)),
      convolutions(std::move(libraries.convolutions)),
      memory_(&gpu.memory) {}

std::byte* Lane::scratch(std::size_t bytes) {
  if (scratch_.bytes() < bytes) {
    outgrown_.push_back(std::move(scratch_));
    scratch_ = memory_->allocate(bytes, "numbers between two kernels");
  }
  return scratch_.data();
}

Partials Lane::partials(std::size_t lines, std::size_t channels, std::size_t groups,
                        std::size_t count, unsigned tile) {
  const unsigned chunks = sum_chunks(lines, groups, tile);
  const std::size_t tickets = sum_tiles(groups, tile) * sizeof(std::uint32_t);
  if (tickets_.bytes() < tickets) {
    outgrown_.push_back(std::move(tickets_));
    tickets_ = memory_->allocate(tickets, "who is the last to add");
    stream.fill(tickets_.data(), 0, tickets);
  }
  auto* const sums = scratch(std::size_t(chunks) * count * channels * sizeof(double));
  return {chunks, reinterpret_cast<double*>(sums),
          reinterpret_cast<std::uint32_t*>(tickets_.data()), tile};
}

}  // namespace lockstep::engine::cuda
