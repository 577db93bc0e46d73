// SPDX-License-Identifier: MIT
// Memory that several processes of one host map: a memfd, its pages reserved when it is made, so
// that shortage is an error and not a SIGBUS later. Others map it through /proc/<pid>/fd/<file>; a
// key at its end tells that they found the right one. Not /dev/shm, whose size containers limit.
// Zeroed, its pages near the processor of the thread that makes it, aligned to 2 MiB from 4 MiB on.
// Any thread. Costs the time to zero the pages. Linux.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/device/buffer.h"

namespace lockstep::collectives {

constexpr std::size_t kPageBytes = 4096;  // of the smallest page
// Returns `bytes` rounded up to whole pages.
constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Where a peer finds it; sent through the bootstrap as text.
struct MappingAddress {
  int pid = 0, file = -1;
  std::size_t bytes = 0;
  std::uint64_t key = 0;
  bool operator==(const MappingAddress&) const = default;
};
std::string to_text(const MappingAddress& address);
MappingAddress mapping_address(const std::string& text);  // throws Error(kInvalid)

class MappedMemory {
 public:
  MappedMemory() = default;
  // Makes and reserves. Throws Error(kIo) saying how much was asked for and how much there is.
  MappedMemory(const std::string& name, std::size_t bytes);
  const MappingAddress& address() const { return address_; }
  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return address_.bytes; }
  // Ends the way in for others; mappings stay. When all have mapped.
  void close_file();

 private:
  MappingAddress address_;
  engine::Buffer file_;    // holds no bytes: its release closes the descriptor
  engine::Buffer buffer_;  // unmaps
};

// Maps a peer's memory. Throws Error(kIo) where this cannot be: then it is no peer of this host.
engine::Buffer map_peer(const MappingAddress& address);

}  // namespace lockstep::collectives
