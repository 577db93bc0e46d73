// SPDX-License-Identifier: MIT
// Copies pageable host memory to a GPU without waiting, through pinned parts that are used in
// rotation. Owned by one replica's kernels, for its computing thread. Costs one copy by the host.
#pragma once
#include <array>
#include <cstddef>
#include <optional>

#include "engine/cuda/memory.h"
#include "engine/cuda/stream.h"
#include "engine/device/buffer.h"

namespace lockstep::engine::cuda {

class HostStaging {
 public:
  static constexpr std::size_t kPart = std::size_t(4) << 20;  // bytes
  static constexpr std::size_t kParts = 4;

  HostStaging(const Context& context, Memory& memory);
  // Queues a copy on the stream; `from` may be reused at once. Waits if all parts are in use.
  void write(CudaStream& stream, const void* from, void* to, std::size_t bytes);

 private:
  struct Part {
    explicit Part(const Context& context) : copied(context) {}
    Buffer memory;  // allocated on first use; grows on demand
    Event copied;
    bool used = false;
  };
  Part& next(std::size_t bytes);

  Memory& memory_;
  std::array<Part, kParts> parts_;
  std::size_t turn_ = 0;
};

}  // namespace lockstep::engine::cuda
