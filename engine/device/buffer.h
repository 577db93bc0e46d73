// SPDX-License-Identifier: MIT
// Memory at a fixed address, owned. Whoever makes it says how it is given back: the heap here, a
// mapping in collectives/memory, a device's allocator elsewhere. Move-only. Contents of a new
// buffer are zero. One thread at a time may move it; its bytes are the user's to share.
#pragma once
#include <cstddef>
#include <functional>

namespace lockstep::engine {

class Buffer {
 public:
  Buffer() = default;
  // Zeroed heap memory, aligned to 4096 bytes (2 MiB from 4 MiB on, for huge pages). Throws
  // Error(kIo) when the system has no more.
  explicit Buffer(std::size_t bytes);
  // Takes `data` over; `release` is called once, and must not throw.
  Buffer(std::byte* data, std::size_t bytes, std::function<void()> release);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();
  // What the heap takes for so many bytes: alignment is the larger part of a small buffer.
  static std::size_t taken(std::size_t bytes);
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::function<void()> release_;
};

}  // namespace lockstep::engine
