// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_memory.h"

#include <algorithm>
#include <cstdlib>
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

// With the zones. Whole pages, which can be closed without closing anything else.
std::size_t whole_bytes(std::size_t bytes) {
  return (kZone + bytes + kZone + kPage - 1) / kPage * kPage;
}

}  // namespace

void FakeMemory::Free::operator()(std::byte* data) const {
  std::free(data);
}

FakeMemory::FakeMemory(int gpus, std::size_t bytes) : free_(std::size_t(gpus), bytes) {}

FakeMemory::~FakeMemory() {
  for (const auto& [data, block] : blocks_) check(block);
}

std::byte* FakeMemory::allocate(int place, std::size_t bytes) {
  if (place != kHost && bytes > free(place)) return nullptr;
  const std::size_t whole = whole_bytes(bytes);
  Block block{place, bytes, nullptr};
  block.whole.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, whole)));
  invariant(block.whole != nullptr, "the host has no memory for a fake GPU");
  std::byte* const data = block.whole.get() + kZone;
  std::fill_n(block.whole.get(), whole, kZoneByte);
  std::fill_n(data, bytes, kFreshByte);
  blocks_.emplace(data, std::move(block));
  if (place != kHost) free_[std::size_t(place)] -= bytes;
  return data;
}

bool FakeMemory::release(int place, std::byte* data) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end() || found->second.place != place) return false;
  check(found->second);
  if (place != kHost) free_[std::size_t(place)] += found->second.bytes;
  blocks_.erase(found);
  return true;
}

FakeMemory::Kind FakeMemory::kind_of(const void* data, std::size_t bytes) const {
  const std::byte* const begin = static_cast<const std::byte*>(data);
  auto block = blocks_.upper_bound(begin);
  if (block == blocks_.begin()) return Kind::kPageable;
  --block;
  const std::byte* const end = block->first + block->second.bytes;
  if (!std::less<>()(begin, end)) return Kind::kPageable;
  if (bytes > std::size_t(end - begin)) return Kind::kOutside;
  return block->second.place == kHost ? Kind::kPinned : Kind::kGpu;
}

int FakeMemory::place_of(const void* data) const {
  return std::prev(blocks_.upper_bound(static_cast<const std::byte*>(data)))->second.place;
}

void FakeMemory::pages(int gpu, std::vector<std::span<std::byte>>& all) const {
  for (const auto& [data, block] : blocks_) {
    if (block.place == gpu) all.emplace_back(block.whole.get(), whole_bytes(block.bytes));
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
