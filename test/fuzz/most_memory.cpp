// SPDX-License-Identifier: MIT
#include "test/fuzz/most_memory.h"

#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace {

std::size_t held = 0, most = 0, before = 0;  // operator new has no user argument

void* taken(void* memory) {
  held += malloc_usable_size(memory);
  most = std::max(most, held);
  return memory;
}

void given_back(void* memory) {
  held -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t bytes) {
  if (void* memory = std::malloc(bytes)) return taken(memory);
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return taken(std::malloc(bytes));
}
void operator delete(void* memory) noexcept {
  given_back(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  given_back(memory);
}

namespace lockstep::test {

void watch_memory() {
  before = most = held;
}
std::size_t most_memory() {
  return most - before;
}

}  // namespace lockstep::test
