// SPDX-License-Identifier: MIT
// Runs a kernel as a GPU would, one thread after the other: blocks and the threads of a block in an
// order that is drawn anew for each block, threads changing at barriers and shuffles alone; of some
// blocks one warp goes as far as it gets before others do. It is stricter than a GPU and stops the
// program with a message where
//   - a thread has left while others of its block wait at a barrier,
//   - a lane misses a shuffle of its warp, or takes part with another one,
//   - a block shares more than 48 KiB, and what its launch asked for.
// Copies into it that a thread does not wait for arrive as late as they may. What a block shares
// holds ones in all bits (NaN) when the block starts. Threads are fibers, which
// the address and thread sanitizers are told of. A kernel that waits for nothing costs a call a
// thread; a wait costs about a microsecond. Any thread may emulate, several at a time; not from
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
  unsigned threads = 256;  // of a block; whole warps of 32, at most 1024
  unsigned shared = 0;     // bytes of `emulated_window`
};

// Runs `body` once for each thread of each block.
void emulate(LaunchShape shape, const std::function<void()>& body);

// The rest is for <grid.cuh>, within a body.

struct EmulatedPlace {
  unsigned block = 0, blocks = 0;
  unsigned block_row = 0, block_rows = 0;
  unsigned thread = 0, threads = 0;
};
const EmulatedPlace& emulated_place();

void emulated_barrier();

// Which lane a lane gets its value from, and of how many bytes that is. The same for all lanes.
struct Shuffle {
  enum class Kind { kDown, kXor };
  Kind kind = Kind::kDown;
  unsigned amount = 0;
  std::size_t bytes = 0;
  bool operator==(const Shuffle&) const = default;
};
std::uint64_t emulated_exchange(std::uint64_t value, Shuffle shuffle);

// Calls work(those of all lanes) once, when all lanes of the warp are here with the same `work`.
void emulated_together(void* mine, void (*work)(const std::array<void*, 32>& lanes));

// Copies of the thread into memory of the block: they arrive when it waits for all groups but the
// latest `left`, to which those belong that no commit followed.
void emulated_copy(std::byte* to, const void* from, std::size_t bytes);
void emulated_commit();
void emulated_wait(unsigned left);

// The memory of the block that its launch asked for, aligned to 16 bytes.
std::byte* emulated_window();

// The array of the block that `key` names, aligned to 16 bytes.
void* emulated_shared(const void* key, std::size_t bytes);

}  // namespace lockstep::engine::cuda
