// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/memory_budget.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"

namespace lockstep::strategies {

namespace {

using engine::Code;

// Minimum size of requests that are compared with the machine's free memory, which other programs
// and servers also use.
constexpr std::uint64_t kLarge = std::uint64_t(1) << 20;
// The reserve for messages, threads and the system: an eighth of the free memory, at most this.
constexpr std::uint64_t kMostReserve = std::uint64_t(1) << 30;

}  // namespace

MemoryBudget::Share::Share(Share&& other) noexcept {
  *this = std::move(other);
}

MemoryBudget::Share& MemoryBudget::Share::operator=(Share&& other) noexcept {
  if (this == &other) return *this;
  resize(0);
  taken_ = std::move(other.taken_);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void MemoryBudget::Share::resize(std::uint64_t bytes) {
  if (taken_) *taken_ += bytes - std::exchange(bytes_, bytes);
}

MemoryBudget::MemoryBudget(std::uint64_t most)
    : most_(most), taken_(std::make_shared<std::atomic<std::uint64_t>>(0)) {
  if (most_ > 0) return;
  most_ = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t free = collectives::available_memory();
  if (free == 0) return;  // unknown to the system
  by_machine_ = true;
  reserve_ = std::min(free / 8, kMostReserve);
  most_ = free - reserve_;
}

void MemoryBudget::refuse(const std::string& what, std::uint64_t bytes) const {
  engine::fail(Code::kMemory,
               "{} needs {} bytes; {} are taken of the {} that the server may take{}", what, bytes,
               taken(), most_,
               by_machine_ ? " (the memory that was free at its start, less a reserve)" : "");
}

MemoryBudget::Share MemoryBudget::take(std::uint64_t bytes, const std::string& what,
                                       std::uint64_t instead_of) const {
  std::uint64_t there = *taken_;
  do {
    const std::uint64_t others = there - std::min(there, instead_of);
    if (others > most_ || bytes > most_ - others) refuse(what, bytes);
  } while (!taken_->compare_exchange_weak(there, there + bytes));
  Share share;
  share.taken_ = taken_;
  share.bytes_ = bytes;
  if (!are_free(bytes - std::min(bytes, instead_of))) {
    engine::fail(Code::kMemory, "{} needs {} bytes, and the server's machine has {} free", what,
                 bytes, collectives::available_memory());
  }
  return share;
}

bool MemoryBudget::are_free(std::uint64_t bytes) const {
  if (!by_machine_ || bytes < kLarge) return true;
  const std::uint64_t free = collectives::available_memory();
  return free > reserve_ / 2 && bytes <= free - reserve_ / 2;
}

MemoryBudget::Share MemoryBudget::add(std::uint64_t bytes) const {
  Share share;
  share.taken_ = taken_;
  share.resize(bytes);
  return share;
}

void MemoryBudget::check(const std::string& what) const {
  if (taken() > most_) refuse(what, 0);
}

}  // namespace lockstep::strategies
