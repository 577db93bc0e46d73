// SPDX-License-Identifier: MIT
// The way of ordinary host memory to a GPU without waiting for it: through pinned parts that are
// used in turn. Owned by one replica's kernels; its computing thread. Cost: one copy by the host.
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
  // Queued behind the stream's work; `from` may be used again. Waits where all parts are under way.
  void write(CudaStream& stream, const void* from, void* to, std::size_t bytes);

 private:
  struct Part {
    explicit Part(const Context& context) : copied(context) {}
    Buffer memory;  // taken when it is first needed, and as large as was needed so far
    Event copied;
    bool used = false;
  };
  Part& next(std::size_t bytes);

  Memory& memory_;
  std::array<Part, kParts> parts_;
  std::size_t turn_ = 0;
};

}  // namespace lockstep::engine::cuda
