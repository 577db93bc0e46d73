// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/array_reader.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>

#include "engine/base/error.h"

namespace lockstep::strategies {

using engine::BFloat16;
using engine::DType;

namespace {

constexpr std::align_val_t kAlignment{64};

// Returns uninitialized memory, since all of it is written.
std::shared_ptr<std::byte> memory_for(std::size_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
  if (memory == nullptr) engine::fail(engine::Code::kIo, "no memory for {} bytes", bytes);
  return {memory, [](std::byte* data) { ::operator delete(data, kAlignment); }};
}

template <class T>
void widen(const BFloat16* from, std::byte* to, std::size_t elements) {
  T* const values = reinterpret_cast<T*>(to);
  for (std::size_t i = 0; i < elements; ++i) values[i] = T(float(from[i]));
}

template <class T>
void narrow(const std::byte* from, BFloat16* to, std::size_t elements) {
  const T* const values = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < elements; ++i) to[i] = BFloat16(float(values[i]));
}

}  // namespace

std::size_t wire_width(DType dtype, bool bfloat16) {
  return bfloat16 ? sizeof(BFloat16) : size_of(dtype);
}

std::vector<rpc::Slice> narrowed(const std::vector<rpc::Slice>& slices, DType dtype) {
  std::size_t elements = 0;
  for (const rpc::Slice& slice : slices) elements += slice.size / size_of(dtype);
  if (elements == 0) return {};
  const std::shared_ptr<std::byte> memory = memory_for(elements * sizeof(BFloat16));
  auto* to = reinterpret_cast<BFloat16*>(memory.get());
  for (const rpc::Slice& slice : slices) {
    const std::size_t count = slice.size / size_of(dtype);
    dtype == DType::kFloat64 ? narrow<double>(slice.data, to, count)
                             : narrow<float>(slice.data, to, count);
    to += count;
  }
  return {{memory.get(), elements * sizeof(BFloat16), memory}};
}

ArrayReader::ArrayReader(const std::vector<rpc::Slice>& body, bool bfloat16)
    : body_(body), bfloat16_(bfloat16), scratch_(kMost) {
  if (bfloat16) narrow_.resize(kMost * sizeof(BFloat16) / sizeof(double));
}

// Returns the next bytes and advances past them. Returns null if they span slices or are not
// aligned.
const std::byte* ArrayReader::in_place(std::size_t bytes, std::size_t alignment) {
  while (slice_ < body_.size() && at_ == body_[slice_].size) ++slice_, at_ = 0;
  if (slice_ == body_.size() || body_[slice_].size - at_ < bytes) return nullptr;
  const std::byte* data = body_[slice_].data + at_;
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) return nullptr;
  at_ += bytes;
  return data;
}

void ArrayReader::copy(std::byte* to, std::size_t bytes) {
  while (bytes > 0) {
    engine::invariant(slice_ < body_.size(), "a body ends before its arrays");
    const rpc::Slice& slice = body_[slice_];
    const std::size_t count = std::min(bytes, slice.size - at_);
    if (count > 0) std::memcpy(to, slice.data + at_, count);
    to += count;
    bytes -= count;
    at_ += count;
    if (at_ == slice.size) ++slice_, at_ = 0;
  }
}

void ArrayReader::skip(std::size_t bytes) {
  while (bytes > 0) {
    engine::invariant(slice_ < body_.size(), "a body ends before its arrays");
    const std::size_t count = std::min(bytes, body_[slice_].size - at_);
    bytes -= count;
    at_ += count;
    if (at_ == body_[slice_].size) ++slice_, at_ = 0;
  }
}

// Widens or copies in pieces of kMost elements.
void ArrayReader::read(std::byte* to, std::size_t elements, DType dtype) {
  if (!bfloat16_) return copy(to, elements * size_of(dtype));
  for (std::size_t done = 0; done < elements;) {
    const std::size_t count = std::min(kMost, elements - done);
    auto* wire = reinterpret_cast<std::byte*>(narrow_.data());
    copy(wire, count * sizeof(BFloat16));
    const auto* values = reinterpret_cast<const BFloat16*>(wire);
    std::byte* const place = to + done * size_of(dtype);
    dtype == DType::kFloat64 ? widen<double>(values, place, count)
                             : widen<float>(values, place, count);
    done += count;
  }
}

const std::byte* ArrayReader::next(std::size_t elements, DType dtype) {
  engine::invariant(elements <= kMost, "more elements at once than the reader has place for");
  if (!bfloat16_) {
    const std::byte* data = in_place(elements * size_of(dtype), size_of(dtype));
    if (data != nullptr) return data;
  }
  auto* data = reinterpret_cast<std::byte*>(scratch_.data());
  read(data, elements, dtype);
  return data;
}

std::shared_ptr<const std::byte> ArrayReader::keep(std::size_t elements, DType dtype) {
  const std::size_t bytes = elements * size_of(dtype);
  if (bytes == 0) return {};
  if (!bfloat16_) {
    const std::size_t slice = slice_, at = at_;
    const std::byte* data = in_place(bytes, size_of(dtype));
    if (data != nullptr && body_[slice_].owner) return {body_[slice_].owner, data};
    slice_ = slice, at_ = at;
  }
  const std::shared_ptr<std::byte> memory = memory_for(bytes);
  read(memory.get(), elements, dtype);
  return memory;
}

}  // namespace lockstep::strategies
