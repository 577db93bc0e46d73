// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_fence.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

// A signal handler needs a global variable.
std::atomic<FakeFence*> standing{nullptr};

}  // namespace

FakeFence::FakeFence(std::vector<std::span<std::byte>> pages) : pages_(std::move(pages)) {
  if (pages_.empty()) return;
  invariant(standing.exchange(this) == nullptr, "one fence at a time");
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  ::sigaction(SIGSEGV, &action, &before_);
  set(PROT_NONE);
}

FakeFence::~FakeFence() {
  if (pages_.empty()) return;
  set(PROT_READ | PROT_WRITE);
  ::sigaction(SIGSEGV, &before_, nullptr);
  standing = nullptr;
}

// Any other fault occurs again, and the previous handler receives it.
void FakeFence::on_fault(int, siginfo_t* about, void*) {
  FakeFence& fence = *standing;
  if (!fence.holds(about->si_addr)) {
    ::sigaction(SIGSEGV, &fence.before_, nullptr);
    return;
  }
  fence.touched_ = 1;
  fence.set(PROT_READ | PROT_WRITE);
}

bool FakeFence::holds(const void* address) const {
  return std::any_of(pages_.begin(), pages_.end(), [&](std::span<std::byte> block) {
    return address >= block.data() && address < block.data() + block.size();
  });
}

void FakeFence::set(int protection) const {
  for (const std::span<std::byte> block : pages_)
    ::mprotect(block.data(), block.size(), protection);
}

}  // namespace lockstep::engine::cuda
