// SPDX-License-Identifier: MIT
// Owned memory at a fixed address. Its maker decides how it is released: the heap here, a mapping
// in collectives/memory, a device's allocator elsewhere. Move-only. A new buffer is zeroed. Only
// one thread at a time may move it; its bytes are the user's to share.
#pragma once
#include <cstddef>
#include <functional>

namespace lockstep::engine {

class Buffer {
 public:
  Buffer() = default;
  // Allocates zeroed heap memory, aligned to 4096 bytes (2 MiB from 4 MiB on, for huge pages).
  // Throws Error(kIo) if the system has no more.
  explicit Buffer(std::size_t bytes);
  // Takes ownership of `data`; `release` is called once and must not throw.
  Buffer(std::byte* data, std::size_t bytes, std::function<void()> release);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  // Returns the heap bytes of a buffer of this size. Alignment is the larger part of a small one.
  static std::size_t taken(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::function<void()> release_;
};

}  // namespace lockstep::engine
