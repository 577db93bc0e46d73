// SPDX-License-Identifier: MIT
#include "engine/device/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine {

namespace {

std::size_t heap_alignment(std::size_t bytes) {
  return bytes >= (std::size_t(4) << 20) ? std::size_t(2) << 20 : 4096;
}

}  // namespace

std::size_t Buffer::taken(std::size_t bytes) {
  const std::size_t alignment = heap_alignment(bytes);
  return (bytes + alignment - 1) / alignment * alignment;
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  const std::size_t alignment = heap_alignment(bytes), rounded = taken(bytes);
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) fail(Code::kIo, "no memory for {} bytes", bytes);
  // Some systems give huge pages only on request; on systems without them nothing is lost.
  if (alignment > 4096) ::madvise(memory, rounded, MADV_HUGEPAGE);
  std::memset(memory, 0, rounded);
  data_ = static_cast<std::byte*>(memory);
  release_ = [memory] { std::free(memory); };
}

Buffer::Buffer(std::byte* data, std::size_t bytes, std::function<void()> release)
    : data_(data), bytes_(bytes), release_(std::move(release)) {}

Buffer::Buffer(Buffer&& other) noexcept {
  *this = std::move(other);
}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (release_) release_();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  release_ = std::exchange(other.release_, nullptr);
  return *this;
}

Buffer::~Buffer() {
  if (release_) release_();
}

}  // namespace lockstep::engine
