// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/framing.h"

#include <algorithm>
#include <cstdint>

namespace lockstep::strategies::rpc {

namespace {

constexpr std::uint64_t kBodyField = 15, kMostField = (1u << 29) - 1;
enum WireType : std::uint64_t { kVarint = 0, kEight = 1, kLength = 2, kFour = 5 };
constexpr std::size_t kMostVarint = 10;  // bytes

void append_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(char(value | 0x80));
  to.push_back(char(value));
}

// Walks over the bytes of all slices as if they were contiguous.
class Cursor {
 public:
  explicit Cursor(const std::vector<Slice>& bytes) : bytes_(bytes) {
    for (const Slice& slice : bytes) left_ += slice.size;
  }
  std::size_t left() const { return left_; }

  // Passes the next `size` bytes to `piece`, slice by slice. `size` is at most left().
  template <class Take>
  void take(std::size_t size, Take piece) {
    while (size > 0) {
      const Slice& slice = bytes_[slice_];
      const std::size_t here = std::min(size, slice.size - offset_);
      if (here > 0) piece(Slice{slice.data + offset_, here, slice.owner});
      offset_ += here, left_ -= here, size -= here;
      if (offset_ == slice.size) ++slice_, offset_ = 0;
    }
  }

  // Reads a varint and appends its bytes to `copy`.
  std::uint64_t varint(std::string& copy) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < kMostVarint; ++i) {
      engine::require(left_ > 0, "no message: it ends within a number");
      std::uint8_t byte = 0;
      take(1, [&](const Slice& one) { byte = std::uint8_t(*one.data); });
      copy.push_back(char(byte));
      value |= std::uint64_t(byte & 0x7f) << (7 * i);
      if (byte < 0x80) return value;
    }
    engine::fail(engine::Code::kInvalid, "no message: a number of more than {} bytes", kMostVarint);
  }

 private:
  const std::vector<Slice>& bytes_;
  std::size_t slice_ = 0, offset_ = 0, left_ = 0;
};

void require_left(const Cursor& cursor, std::uint64_t size) {
  engine::require(size <= cursor.left(), "no message: a field of {} bytes where {} are left", size,
                  cursor.left());
}

}  // namespace

std::string framed_head(const Message& message) {
  std::string head = message.head;
  const std::size_t bytes = message.body_bytes();
  if (bytes > 0) {
    append_varint(head, kBodyField << 3 | kLength);
    append_varint(head, bytes);
  }
  return head;
}

Message parse(const std::vector<Slice>& bytes) {
  Message message;
  Cursor cursor(bytes);
  std::string field;  // tag, and length or number, as received
  while (cursor.left() > 0) {
    field.clear();
    const std::uint64_t tag = cursor.varint(field), number = tag >> 3;
    engine::require(number >= 1 && number <= kMostField, "no message: there is no field {}",
                    number);
    const std::uint64_t type = tag & 7;
    std::uint64_t size = 0;
    if (type == kVarint) {
      cursor.varint(field);
    } else if (type == kLength) {
      size = cursor.varint(field);
    } else if (type == kEight || type == kFour) {
      size = type == kEight ? 8 : 4;
    } else {
      engine::fail(engine::Code::kInvalid, "no message: field {} has the type {}", number, type);
    }
    require_left(cursor, size);
    if (number == kBodyField) {
      engine::require(type == kLength, "no message: the body has the type {}", type);
      message.body.clear();
      cursor.take(size, [&](Slice piece) { message.body.push_back(std::move(piece)); });
    } else {
      message.head += field;
      cursor.take(size, [&](const Slice& piece) {
        message.head.append(reinterpret_cast<const char*>(piece.data), piece.size);
      });
    }
  }
  return message;
}

}  // namespace lockstep::strategies::rpc
