// SPDX-License-Identifier: MIT
#include "test/support/counted_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> counting{false};  // operator new has no user argument
std::atomic<std::int64_t> allocations{0};
}  // namespace

void* operator new(std::size_t bytes) {
  if (counting) ++allocations;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  if (counting) ++allocations;
  return std::malloc(bytes);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace lockstep::test {

void count_allocations() {
  allocations = 0;
  counting = true;
}

std::int64_t counted_allocations() {
  counting = false;
  return allocations;
}

}  // namespace lockstep::test
