// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

constexpr std::size_t kZone = 512;
constexpr std::size_t kPage = 4096;
constexpr std::byte kZoneByte{0xa5};
constexpr std::byte kFreshByte{0xff};

// Returns the bytes of a block and its guard zones, rounded up to whole pages. They can be
// protected without affecting other blocks.
std::size_t whole_bytes(std::size_t bytes) {
  return (kZone + bytes + kZone + kPage - 1) / kPage * kPage;
}

}  // namespace

void FakeMemory::Free::operator()(std::byte* data) const {
  ::munmap(data, bytes);
}

FakeMemory::FakeMemory(int gpus, std::size_t bytes) : free_(std::size_t(gpus), bytes) {}

FakeMemory::~FakeMemory() {
  for (const auto& [data, block] : blocks_) check(block);
}

// Maps shared pages, so that a second address can map them too.
std::byte* FakeMemory::allocate(int place, std::size_t bytes, int process) {
  if (place != kHost && bytes > free(place)) return nullptr;
  const std::size_t whole = whole_bytes(bytes);
  void* const mapped =
      ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  invariant(mapped != MAP_FAILED, "the host has no memory for a fake GPU");
  Block block;
  block.place = place, block.process = process, block.bytes = bytes;
  block.whole = {static_cast<std::byte*>(mapped), Free{whole}};
  std::byte* const data = block.whole.get() + kZone;
  std::fill_n(block.whole.get(), whole, kZoneByte);
  std::fill_n(data, bytes, kFreshByte);
  blocks_.emplace(data, std::move(block));
  if (place != kHost) free_[std::size_t(place)] -= bytes;
  return data;
}

bool FakeMemory::release(int place, std::byte* data) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.place != place || found->second.of != nullptr)
    return false;
  check(found->second);
  invariant(std::none_of(blocks_.begin(), blocks_.end(),
                         [&](const auto& entry) { return entry.second.of == data; }),
            "memory is given back that another process has open");
  if (place != kHost) free_[std::size_t(place)] += found->second.bytes;
  blocks_.erase(found);
  return true;
}

std::byte* FakeMemory::open(const std::byte* data, int process, int gpu) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return nullptr;
  const Block& theirs = found->second;
  if (theirs.place == kHost || theirs.of != nullptr || theirs.process == process) return nullptr;
  for (auto& [address, block] : blocks_) {
    if (block.of != data || block.process != process || block.reader != gpu) continue;
    ++block.opened;
    return const_cast<std::byte*>(address);
  }
  const std::size_t whole = whole_bytes(theirs.bytes);
  void* const mapped = ::mremap(theirs.whole.get(), 0, whole, MREMAP_MAYMOVE);
  invariant(mapped != MAP_FAILED, "a fake GPU's memory has a second address");
  Block mine;
  mine.place = theirs.place, mine.process = process, mine.bytes = theirs.bytes;
  mine.whole = {static_cast<std::byte*>(mapped), Free{whole}};
  mine.of = data;
  mine.reader = gpu;
  mine.opened = 1;
  std::byte* const address = mine.whole.get() + kZone;
  blocks_.emplace(address, std::move(mine));
  return address;
}

bool FakeMemory::close(std::byte* opened) {
  const auto found = blocks_.find(opened);
  if (found == blocks_.end() || found->second.of == nullptr) return false;
  if (--found->second.opened == 0) blocks_.erase(found);
  return true;
}

void FakeMemory::close_all() {
  std::erase_if(blocks_, [](const auto& entry) { return entry.second.of != nullptr; });
}

bool FakeMemory::pin(std::byte* data, std::size_t bytes) {
  if (is_pinned(data) || is_pinned(data + bytes - 1)) return false;
  pinned_.emplace(data, bytes);
  return true;
}

bool FakeMemory::unpin(std::byte* data) {
  return pinned_.erase(data) == 1;
}

bool FakeMemory::is_pinned(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  auto found = pinned_.upper_bound(at);
  if (found == pinned_.begin()) return false;
  --found;
  return std::less<>()(at, found->first + found->second);
}

const FakeMemory::Block* FakeMemory::block_of(const void* data) const {
  const auto* const at = static_cast<const std::byte*>(data);
  auto block = blocks_.upper_bound(at);
  if (block == blocks_.begin()) return nullptr;
  --block;
  return std::less<>()(at, block->first + block->second.bytes) ? &block->second : nullptr;
}

FakeMemory::Kind FakeMemory::kind_of(const void* data, std::size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  const Block* const block = block_of(data);
  if (block == nullptr) {
    if (!is_pinned(data)) return Kind::kPageable;
    return bytes == 0 || is_pinned(begin + bytes - 1) ? Kind::kPinned : Kind::kOutside;
  }
  const std::byte* const end = block->whole.get() + kZone + block->bytes;
  if (bytes > std::size_t(end - begin)) return Kind::kOutside;
  return block->place == kHost ? Kind::kPinned : Kind::kGpu;
}

int FakeMemory::place_of(const void* data) const {
  const Block* const block = block_of(data);
  return block == nullptr ? kHost : block->place;
}

int FakeMemory::process_of(const void* data) const {
  const Block* const block = block_of(data);
  return block == nullptr ? -1 : block->process;
}

void FakeMemory::closed_to(int process, int gpu, const std::set<int>& peers,
                           std::vector<std::span<std::byte>>& all) const {
  for (const auto& [data, block] : blocks_) {
    if (block.place == kHost) continue;
    const bool reached = block.of != nullptr ? block.reader == gpu
                                             : block.place == gpu || peers.contains(block.place);
    if (block.process == process && reached) continue;
    all.emplace_back(block.whole.get(), whole_bytes(block.bytes));
  }
}

void FakeMemory::check(const Block& block) {
  const std::byte* const before = block.whole.get();
  const std::byte* const behind = before + kZone + block.bytes;
  const auto untouched = [](std::byte b) { return b == kZoneByte; };
  invariant(std::all_of(before, before + kZone, untouched), "something wrote before a block");
  invariant(std::all_of(behind, behind + kZone, untouched), "something wrote behind a block");
}

}  // namespace lockstep::engine::cuda
