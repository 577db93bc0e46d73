// SPDX-License-Identifier: MIT
// The memory of fake GPUs, and pinned memory: the host's own, so that tests look inside. Fresh
// memory has ones in all bits (NaN, and no address), and zones on both sides which must stay as
// they are: giving back a block that something wrote beside stops the program. One thread at a
// time.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
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

  std::byte* allocate(int place, std::size_t bytes);  // null where there is too little
  bool release(int place, std::byte* data);           // false where no such block begins there

  std::size_t free(int gpu) const { return free_[std::size_t(gpu)]; }
  std::size_t blocks() const { return blocks_.size(); }

  enum class Kind { kGpu, kPinned, kPageable, kOutside };
  // What [data, data + bytes) is; outside: it leaves its block.
  Kind kind_of(const void* data, std::size_t bytes) const;
  int place_of(const void* data) const;  // of what lies in a block
  // Adds the pages of every block of a GPU, which hold nothing else.
  void pages(int gpu, std::vector<std::span<std::byte>>& all) const;

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  struct Block {
    int place = 0;
    std::size_t bytes = 0;
    std::unique_ptr<std::byte, Free> whole;  // with the zones
  };
  static void check(const Block& block);

  std::vector<std::size_t> free_;
  std::map<const std::byte*, Block> blocks_;
};

}  // namespace lockstep::engine::cuda
