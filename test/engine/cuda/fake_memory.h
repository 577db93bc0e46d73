// SPDX-License-Identifier: MIT
// The memory of fake GPUs, and pinned memory. It is host memory, so tests can read it. New memory
// has ones in all bits (NaN, and not an address), between two guard zones. Freeing a block stops
// the program if something wrote to its zones, or if another process has the block open. A process
// that opens a block of another one gets a different address. Not thread-safe.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

namespace lockstep::engine::cuda {

class FakeMemory {
 public:
  static constexpr int kHost = -1;  // pinned memory, not a GPU

  // Gives each GPU `bytes` bytes; the host's memory is unlimited.
  FakeMemory(int gpus, std::size_t bytes);
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // Returns null if there is too little memory.
  std::byte* allocate(int place, std::size_t bytes, int process = 0);
  bool release(int place, std::byte* data);  // false if no block begins there

  // Opens a block of another process for kernels of one GPU of this process. Returns the same
  // address if it is already open there, or null if no block of another process begins there.
  std::byte* open(const std::byte* data, int process, int gpu);
  bool close(std::byte* opened);  // false if it is not open
  void close_all();

  // Registers pages of the host as pinned, in place. Returns false if some are pinned already;
  // `unpin` does if none are.
  bool pin(std::byte* data, std::size_t bytes);
  bool unpin(std::byte* data);

  std::size_t free(int gpu) const { return free_[std::size_t(gpu)]; }
  std::size_t blocks() const { return blocks_.size(); }  // including open ones
  std::size_t pinned() const { return pinned_.size(); }  // by `pin`

  enum class Kind { kGpu, kPinned, kPageable, kOutside };
  // Returns the kind of [data, data + bytes); kOutside: it exceeds its block.
  Kind kind_of(const void* data, std::size_t bytes) const;
  // Returns the place (the process) of a block or of pinned memory. The process of memory that was
  // pinned in place is unknown: -1.
  int place_of(const void* data) const;
  int process_of(const void* data) const;
  // Appends the pages of every block that kernels of a GPU may not access, which hold nothing else.
  // These blocks belong to other processes, or to GPUs that are not among its `peers`.
  void closed_to(int process, int gpu, const std::set<int>& peers,
                 std::vector<std::span<std::byte>>& all) const;

 private:
  struct Free {
    std::size_t bytes;
    void operator()(std::byte* data) const;
  };
  struct Block {
    int place = 0, process = 0;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte, Free> whole;  // including the zones
    const std::byte* of = nullptr;           // the original of an opened block ...
    int reader = 0, opened = 0;              // ... its GPU, and open count
  };
  static void check(const Block& block);
  const Block* block_of(const void* data) const;
  bool is_pinned(const void* data) const;

  std::vector<std::size_t> free_;
  std::map<const std::byte*, Block> blocks_;
  std::map<const std::byte*, std::size_t> pinned_;
};

}  // namespace lockstep::engine::cuda
