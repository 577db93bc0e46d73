// SPDX-License-Identifier: MIT
// The elements of arrays out of the slices of a message's body, front to back, in memory aligned to
// them: the slices' own where it is, else a copy. Those that travel as bfloat16 are widened. The
// body outlives the reader, and is long enough for all that is asked (checked before). One thread.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "engine/tensor/tensor.h"
#include "strategies/parameter_server/rpc/rpc.h"

namespace lockstep::strategies {

// Bytes of an element on the wire.
std::size_t wire_width(engine::DType dtype, bool bfloat16);

// The slices of float32 or float64 elements as bfloat16, rounded to the nearest, of two as near the
// even one, in one slice of their own memory. Slices end at whole elements. Throws Error(kIo)
// where there is no memory.
std::vector<rpc::Slice> narrowed(const std::vector<rpc::Slice>& slices, engine::DType dtype);

class ArrayReader {
 public:
  static constexpr std::size_t kMost = 16384;  // elements of one `next`; they stay in a cache

  ArrayReader(const std::vector<rpc::Slice>& body, bool bfloat16);
  // The next elements, at most kMost; valid until the next call.
  const std::byte* next(std::size_t elements, engine::DType dtype);
  // The next elements, any number, into this memory.
  void read(std::byte* to, std::size_t elements, engine::DType dtype);
  // The next elements, any number, for as long as somebody holds them: what the slice's owner
  // holds, or a copy. Throws Error(kIo) where there is no memory.
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
