// SPDX-License-Identifier: MIT
// Runs a kernel as a GPU would, one thread at a time. Blocks and the threads of a block run in an
// order that is drawn for each block, and switch only at barriers and shuffles. In some blocks,
// each warp runs as far as it can before others do. The emulator is stricter than a GPU. It stops
// the program with a message if
//   - a thread has left while others of its block wait at a barrier,
//   - a lane misses a shuffle of its warp, or takes part in a different one,
//   - a block's shared arrays exceed 48 KiB (the launch's dynamic memory is extra).
// Asynchronous copies arrive as late as possible. Shared memory holds ones in all bits (NaN) when a
// block starts. Threads are fibers, known to the address and thread sanitizers. A thread costs a
// call, and each wait about a microsecond. Any thread may emulate, several at a time, but not from
// within a kernel. A body must not throw.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace lockstep::engine::cuda {

struct LaunchShape {
  unsigned blocks = 1;
  unsigned block_rows = 1;
  unsigned threads = 256;  // of a block; whole warps, at most 1024
  unsigned shared = 0;     // bytes of `emulated_window`
};

// Runs `body` once for each thread of each block.
void emulate(LaunchShape shape, const std::function<void()>& body);

// The functions below implement <grid.cuh>; call them only within a body.

struct EmulatedPlace {
  unsigned block = 0, blocks = 0;
  unsigned block_row = 0, block_rows = 0;
  unsigned thread = 0, threads = 0;
};
const EmulatedPlace& emulated_place();

void emulated_barrier();

// Describes the source lane of each lane, and the size of a value in bytes. All lanes pass the
// same.
struct Shuffle {
  enum class Kind { kDown, kXor };
  Kind kind = Kind::kDown;
  unsigned amount = 0;
  std::size_t bytes = 0;
  bool operator==(const Shuffle&) const = default;
};
std::uint64_t emulated_exchange(std::uint64_t value, Shuffle shuffle);

// Calls work(`mine` of all lanes) once, when all lanes of the warp have called with the same
// `work`.
void emulated_together(void* mine, void (*work)(const std::array<void*, 32>& lanes));

// Copies asynchronously into the block's memory. Copies arrive when the thread waits for all
// committed groups but the latest `left`; uncommitted copies remain pending.
void emulated_copy(std::byte* to, const void* from, std::size_t bytes);
void emulated_commit();
void emulated_wait(unsigned left);

// Returns the block's dynamic memory, as requested by the launch, aligned to 16 bytes.
std::byte* emulated_window();

// Returns the block's array for `key`, aligned to 16 bytes.
void* emulated_shared(const void* key, std::size_t bytes);

}  // namespace lockstep::engine::cuda
