// SPDX-License-Identifier: MIT
// Memory that several processes of one host map. It is a memfd whose pages are reserved at
// creation, so that a shortage is an error and not a SIGBUS later. Other processes map it through
// /proc/<pid>/fd/<file>; a key at its end proves that they found the right file. /dev/shm is not
// used, since containers limit its size. The memory is zeroed, and its pages are near the processor
// of the creating thread. From 4 MiB on it is aligned to 2 MiB. Thread-safe. Creation costs the
// time to zero the pages. Linux only.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/device/buffer.h"

namespace lockstep::collectives {

constexpr std::size_t kPageBytes = 4096;  // the smallest page
// Returns `bytes` rounded up to whole pages.
constexpr std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// Tells a peer where the memory is. Processes send it as text through the bootstrap.
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
  // Creates and reserves the memory. Throws Error(kIo) with the requested and the available bytes.
  MappedMemory(const std::string& name, std::size_t bytes);
  const MappingAddress& address() const { return address_; }
  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return address_.bytes; }
  // Closes the file, so that no other process can map it. Mappings stay. Call it when all have
  // mapped.
  void close_file();

 private:
  MappingAddress address_;
  engine::Buffer file_;    // no bytes; its release closes the descriptor
  engine::Buffer buffer_;  // unmaps
};

// Maps a peer's memory. Throws Error(kIo) if that is impossible: then it is no peer on this host.
engine::Buffer map_peer(const MappingAddress& address);

}  // namespace lockstep::collectives
