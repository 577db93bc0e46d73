// SPDX-License-Identifier: MIT
// Memory, copies, and fills of a fake GPU.
#include <cstring>
#include <utility>
#include <vector>

#include "test/engine/cuda/fake_driver.h"

namespace lockstep::engine::cuda {
namespace {

std::byte* bytes_at(CUdeviceptr address) {
  return reinterpret_cast<std::byte*>(std::uintptr_t(address));
}

// Returns the default stream of the GPU, for the calling process.
FakeStream* default_stream(FakeState& state, const FakeContext& context) {
  FakeStream* const stream = state.defaults[std::size_t(context.gpu)];
  stream->process = context.process;
  return stream;
}

// Returns whether memory belongs to another process and thus has no address here.
bool is_foreign(const FakeState& state, const FakeStream& stream, const std::byte* data) {
  const int process = state.memory.process_of(data);
  return process >= 0 && process != stream.process;
}

// Queues a copy. The driver copies pageable sources at once and waits for copies to pageable
// targets; it refuses both in a captured stream.
CUresult copy_later(FakeState& state, FakeStream* stream, std::byte* to, const std::byte* from,
                    std::size_t bytes) {
  const FakeMemory::Kind target = state.memory.kind_of(to, bytes);
  const FakeMemory::Kind source = state.memory.kind_of(from, bytes);
  if (target == FakeMemory::Kind::kOutside || source == FakeMemory::Kind::kOutside) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (is_foreign(state, *stream, to) || is_foreign(state, *stream, from))
    return CUDA_ERROR_INVALID_VALUE;
  const bool staged = source == FakeMemory::Kind::kPageable;
  const bool waits = target == FakeMemory::Kind::kPageable;
  if (stream->capture && (staged || waits)) {
    stream->capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (staged) {
    state.queue.push(stream, "copy", [to, data = std::vector<std::byte>(from, from + bytes)] {
      std::memcpy(to, data.data(), data.size());
    });
  } else {
    state.queue.push(stream, "copy", [to, from, bytes] { std::memcpy(to, from, bytes); });
  }
  return waits ? result_of(state.queue.finish(stream)) : CUDA_SUCCESS;
}

CUresult fill_later(FakeState& state, FakeStream* stream, std::byte* to, unsigned char value,
                    std::size_t bytes) {
  const FakeMemory::Kind target = state.memory.kind_of(to, bytes);
  if (target != FakeMemory::Kind::kGpu && target != FakeMemory::Kind::kPinned) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int place = state.memory.place_of(to);
  const bool reached = place == FakeMemory::kHost || place == stream->gpu ||
                       state.context(stream->process, stream->gpu).peers.contains(place);
  if (!reached || is_foreign(state, *stream, to)) return CUDA_ERROR_INVALID_VALUE;
  state.queue.push(stream, "fill", [=] { std::memset(to, value, bytes); });
  return CUDA_SUCCESS;
}

// Frees memory after all work that may use it.
CUresult release(FakeState& state, const FakeContext& context, int place, std::byte* data) {
  const CUresult waited = result_of(state.queue.finish_all(context.gpu, context.process));
  if (waited != CUDA_SUCCESS) return waited;
  return state.memory.release(place, data) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void fill_blocks(Driver& driver) {
  driver.mem_get_info = [](std::size_t* free, std::size_t* total) {
    return in_context([&](FakeState& state, const FakeContext& context) {
      *free = state.memory.free(context.gpu);
      *total = state.options.memory;
      return CUDA_SUCCESS;
    });
  };
  driver.mem_alloc = [](CUdeviceptr* address, std::size_t bytes) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
      std::byte* const data = state.memory.allocate(context.gpu, bytes, context.process);
      *address = CUdeviceptr(reinterpret_cast<std::uintptr_t>(data));
      return data == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    });
  };
  driver.mem_free = [](CUdeviceptr address) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      return release(state, context, context.gpu, bytes_at(address));
    });
  };
  driver.mem_host_alloc = [](void** address, std::size_t bytes, unsigned) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
      *address = state.memory.allocate(FakeMemory::kHost, bytes, context.process);
      return CUDA_SUCCESS;
    });
  };
  driver.mem_free_host = [](void* address) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      return release(state, context, FakeMemory::kHost, static_cast<std::byte*>(address));
    });
  };
}

}  // namespace

void fill_memory(Driver& driver) {
  fill_blocks(driver);
  driver.memcpy = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      FakeStream* const stream = default_stream(state, context);
      const CUresult queued = copy_later(state, stream, bytes_at(to), bytes_at(from), bytes);
      return queued == CUDA_SUCCESS ? result_of(state.queue.finish(stream)) : queued;
    });
  };
  driver.memset_d8 = [](CUdeviceptr to, unsigned char value, std::size_t bytes) {
    return uncaptured([&](FakeState& state, const FakeContext& context) {
      return fill_later(state, default_stream(state, context), bytes_at(to), value, bytes);
    });
  };
  driver.memcpy_async = [](CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream handle) {
    return with_stream(handle, [&](FakeState& state, FakeStream* stream) {
      return copy_later(state, stream, bytes_at(to), bytes_at(from), bytes);
    });
  };
  driver.memset_d8_async = [](CUdeviceptr to, unsigned char value, std::size_t bytes,
                              CUstream handle) {
    return with_stream(handle, [&](FakeState& state, FakeStream* stream) {
      return fill_later(state, stream, bytes_at(to), value, bytes);
    });
  };
}

}  // namespace lockstep::engine::cuda
