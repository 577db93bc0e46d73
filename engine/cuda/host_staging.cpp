// SPDX-License-Identifier: MIT
#include "engine/cuda/host_staging.h"

#include <algorithm>
#include <cstring>

namespace lockstep::engine::cuda {

HostStaging::HostStaging(const Context& context, Memory& memory)
    : memory_(memory), parts_{Part(context), Part(context), Part(context), Part(context)} {
  static_assert(kParts == 4, "as many are made here");
}

// Returns the least recently used part. Most writes are small, so parts grow by doubling.
HostStaging::Part& HostStaging::next(std::size_t bytes) {
  Part& part = parts_[turn_++ % kParts];
  if (part.used) part.copied.synchronize(CudaStream::kDeadline);
  part.used = false;
  if (part.memory.bytes() < bytes) {
    std::size_t size = std::size_t(4) << 10;
    while (size < bytes) size *= 2;
    part.memory = Buffer();
    part.memory = memory_.pinned(size);
  }
  return part;
}

void HostStaging::write(CudaStream& stream, const void* from, void* to, std::size_t bytes) {
  if (Capture* const capture = stream.recorded())
    return capture->refuse("memory of the host is written to the GPU while that is recorded");
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t count = std::min(kPart, bytes - done);
    Part& part = next(count);
    std::memcpy(part.memory.data(), static_cast<const std::byte*>(from) + done, count);
    stream.copy(static_cast<std::byte*>(to) + done, part.memory.data(), count);
    stream.record(part.copied);
    part.used = true;
    done += count;
  }
}

}  // namespace lockstep::engine::cuda
