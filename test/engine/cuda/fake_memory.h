// SPDX-License-Identifier: MIT
// The memory of fake GPUs, and pinned memory: the host's own, so that tests look inside. Fresh
// memory has ones in all bits (NaN, and no address), and zones on both sides which must stay as
// they are: giving back a block that something wrote beside stops the program. So does giving back
// what another process has open. A process that opens a block of another has it at an address of
// its own. One thread at a time.
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
  static constexpr int kHost = -1;  // pinned memory, instead of a GPU

  // For each GPU so many bytes; of the host without end.
  FakeMemory(int gpus, std::size_t bytes);
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  // Null where there is too little.
  std::byte* allocate(int place, std::size_t bytes, int process = 0);
  bool release(int place, std::byte* data);  // false where no such block begins there

  // A block of another process, for kernels of one GPU of this one: again the same address where it
  // is open there already. Null where none of another process begins there.
  std::byte* open(const std::byte* data, int process, int gpu);
  bool close(std::byte* opened);  // false where it is not open
  void close_all();

  // The host's pages, pinned where they lie. False where some are already; where none are.
  bool pin(std::byte* data, std::size_t bytes);
  bool unpin(std::byte* data);

  std::size_t free(int gpu) const { return free_[std::size_t(gpu)]; }
  std::size_t blocks() const { return blocks_.size(); }  // with those that are open
  std::size_t pinned() const { return pinned_.size(); }  // by `pin`

  enum class Kind { kGpu, kPinned, kPageable, kOutside };
  // What [data, data + bytes) is; outside: it leaves its block.
  Kind kind_of(const void* data, std::size_t bytes) const;
  // Of what lies in a block, or is pinned. Of the second the process is not known: -1.
  int place_of(const void* data) const;
  int process_of(const void* data) const;
  // Adds the pages of every block that kernels of a GPU may not touch, which hold nothing else:
  // those of other processes, and of GPUs that are not its `peers`.
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
    std::unique_ptr<std::byte, Free> whole;  // with the zones
    const std::byte* of = nullptr;           // the block that is open here ...
    int reader = 0, opened = 0;              // ... for which GPU, and how often
  };
  static void check(const Block& block);
  const Block* block_of(const void* data) const;
  bool is_pinned(const void* data) const;

  std::vector<std::size_t> free_;
  std::map<const std::byte*, Block> blocks_;
  std::map<const std::byte*, std::size_t> pinned_;
};

}  // namespace lockstep::engine::cuda
