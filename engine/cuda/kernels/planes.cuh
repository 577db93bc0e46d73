// SPDX-License-Identifier: MIT
// Rows of an image of 16-bit numbers in the memory of a block, as planes of 8 channels in which
// pixels lie one behind the other, with zeros beyond the image. So the pixel that a tap sees is a
// constant distance away, and the matrix units read what each tap sees where it lies.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

#include "engine/cuda/kernels/elements.cuh"
#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/kernels/pack.cuh"

namespace lockstep::engine::cuda {

inline constexpr unsigned kPieceBytes = 16;  // 8 channels of a pixel
struct alignas(kPieceBytes) Piece {
  std::uint32_t words[4];
};

// Divides numbers below 65536 by a fixed divisor of at least 2, by a multiplication.
class Divisor {
 public:
  struct Result {
    unsigned quotient, remainder;
  };

  __device__ explicit Divisor(unsigned by) : by_(by), inverse_(~0u / by + 1) {}
  __device__ Result divide(unsigned number) const {
    const auto quotient = unsigned(std::uint64_t(number) * inverse_ >> 32);
    return {quotient, number - quotient * by_};
  }

 private:
  unsigned by_, inverse_;
};

struct PlaneSizes {
  unsigned height, width;  // of an image
  unsigned pitch, left;    // pixels of a row here, and those left of the image
  unsigned rows, pixels;   // here; pixels behind the last row are zeros, too
  unsigned plane;          // bytes
};

// All kThreads threads of the block call these. Each copies the same 8 channels of all its pixels,
// and has the loads of the first kAtOnce under way together. Copy k of the planes, behind the
// others, holds pixel i + k at place i.
template <class T, unsigned kChannels, unsigned kThreads, unsigned kCopies = 1>
class Planes {
 public:
  static constexpr unsigned kPieces = kChannels / kPack, kAtOnce = 6;
  using Pieces = Piece[kAtOnce];

  __device__ Planes(std::byte* memory, const PlaneSizes& sizes)
      : sizes_(sizes), width_(sizes.width), pitch_(sizes.pitch), memory_(memory) {}

  // Loads what the rows from `row` on of an image have first. They may begin above the image.
  __device__ void fetch(const T* images, unsigned image, int row, Pieces& to) const {
    const Part part(sizes_, image, row);
    const unsigned count = part.rows * sizes_.width * kPieces;
    repeat<kAtOnce>([&](unsigned k) {
      const unsigned i = thread() + k * kThreads;
      if (i < count) to[k] = load(images + part.first * kChannels, i);
    });
  }
  // Puts these and the others into the planes.
  __device__ void put(const T* images, unsigned image, int row, const Pieces& pieces) const {
    const Part part(sizes_, image, row);
    const unsigned count = part.rows * sizes_.width;
    const unsigned corner = part.above * sizes_.pitch + sizes_.left;
    const unsigned between = sizes_.pitch - sizes_.width;
    const auto place = [&](unsigned pixel) {
      return corner + pixel + (between == 0 ? 0 : width_.divide(pixel).quotient * between);
    };
    repeat<kAtOnce>([&](unsigned k) {
      const unsigned pixel = thread() / kPieces + k * kPixels;
      if (pixel < count) set(thread() % kPieces, place(pixel), pieces[k]);
    });
    for (unsigned pixel = thread() / kPieces + kAtOnce * kPixels; pixel < count; pixel += kPixels)
      set(thread() % kPieces, place(pixel),
          load(images + part.first * kChannels, pixel * kPieces + thread() % kPieces));
    if (count == sizes_.pixels) return;
    for (unsigned pixel = thread(); pixel < sizes_.pixels; pixel += kThreads) {
      const auto [y, x] = pitch_.divide(pixel);
      if (y - part.above < part.rows && x - sizes_.left < sizes_.width) continue;
      repeat<kPieces>([&](unsigned p) { set(p, pixel, Piece{}); });
    }
  }

 private:
  static constexpr unsigned kPixels = kThreads / kPieces;  // that all threads have at a time

  // The rows that are in the image: so many, below so many that lie above it.
  struct Part {
    unsigned above, rows;
    std::size_t first;  // pixel of the batch
    __device__ Part(const PlaneSizes& s, unsigned image, int row)
        : above(row < 0 ? unsigned(-row) : 0) {
      const unsigned begin = row < 0 ? 0 : unsigned(row);
      rows = unsigned(least(s.height - begin, s.rows - above));
      first = (std::size_t(image) * s.height + begin) * s.width;
    }
  };

  __device__ static Piece load(const T* from, unsigned piece) {
    return read_wide(reinterpret_cast<const Piece*>(from) + piece);
  }
  __device__ void set(unsigned plane, unsigned pixel, const Piece& value) const {
    repeat<kCopies>([&](unsigned earlier) {
      std::byte* const of_copy = memory_ + (earlier * kPieces + plane) * sizes_.plane;
      if (pixel >= earlier) reinterpret_cast<Piece*>(of_copy)[pixel - earlier] = value;
    });
  }

  PlaneSizes sizes_;
  Divisor width_, pitch_;
  std::byte* memory_;
};

}  // namespace lockstep::engine::cuda
