// SPDX-License-Identifier: MIT
// A reader of array elements from the slices of a message's body, front to back. Elements are
// aligned: in the slice's own memory if possible, otherwise in a copy. Elements that travel as
// bfloat16 are widened. The body must outlive the reader and be long enough for all reads (checked
// by the caller). Not thread-safe.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies {

// Returns the bytes of an element on the wire.
std::size_t wire_width(engine::DType dtype, bool bfloat16);

// Returns the float32 or float64 elements of the slices as bfloat16, in one slice with its own
// memory. Rounds to nearest, ties to even. Slices must end at whole elements. Throws Error(kIo) if
// memory is short.
std::vector<rpc::Slice> narrowed(const std::vector<rpc::Slice>& slices, engine::DType dtype);

class ArrayReader {
 public:
  // Maximum elements of one `next`; they fit into a cache.
  static constexpr std::size_t kMost = 16384;

  ArrayReader(const std::vector<rpc::Slice>& body, bool bfloat16);
  // Returns the next elements, at most kMost; valid until the next call.
  const std::byte* next(std::size_t elements, engine::DType dtype);
  // Copies the next elements, any number, to `to`.
  void read(std::byte* to, std::size_t elements, engine::DType dtype);
  // Returns the next elements, any number, with shared ownership: the slice's owner or a copy.
  // Throws Error(kIo) if memory is short.
  std::shared_ptr<const std::byte> keep(std::size_t elements, engine::DType dtype);
  void skip(std::size_t bytes);

 private:
  const std::byte* in_place(std::size_t bytes, std::size_t alignment);
  void copy(std::byte* to, std::size_t bytes);
  const std::vector<rpc::Slice>& body_;
  bool bfloat16_ = false;
  std::size_t slice_ = 0, at_ = 0;  // the next byte
  std::vector<double> scratch_, narrow_;
};

}  // namespace lockstep::strategies
