// SPDX-License-Identifier: MIT
// Rows of an image of 16-bit numbers in shared memory, as planes of 8 channels with contiguous
// pixels and zeros outside the image. The pixel of a tap is at a constant distance, so the tensor
// cores read each tap's inputs in place.
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

// Divides numbers below 65536 by a fixed divisor of at least 2, with a multiplication.
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
  unsigned pitch, left;    // pixels per row, pixels left of the image
  unsigned rows, pixels;   // here; pixels after the last row are zero
  unsigned plane;          // bytes
};

// All kThreads threads of the block call these functions. Each copies the same 8 channels of all
// its pixels, and overlaps the loads of the first kAtOnce. Copy k of the planes follows the others
// and holds pixel i + k at place i.
template <class T, unsigned kChannels, unsigned kThreads, unsigned kCopies = 1>
class Planes {
 public:
  static constexpr unsigned kPieces = kChannels / kPack, kAtOnce = 6;
  using Pieces = Piece[kAtOnce];

  __device__ Planes(std::byte* memory, const PlaneSizes& sizes)
      : sizes_(sizes), width_(sizes.width), pitch_(sizes.pitch), memory_(memory) {}

  // Loads the thread's first pieces of the image rows from `row` on, which may begin above the
  // image.
  __device__ void fetch(const T* images, unsigned image, int row, Pieces& to) const {
    const Part part(sizes_, image, row);
    const unsigned count = part.rows * sizes_.width * kPieces;
    repeat<kAtOnce>([&](unsigned k) {
      const unsigned i = thread() + k * kThreads;
      if (i < count) to[k] = load(images + part.first * kChannels, i);
    });
  }
  // Stores these pieces and all others into the planes.
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
  static constexpr unsigned kPixels = kThreads / kPieces;  // pixels per pass of all threads

  // Describes the rows inside the image: `rows` of them, after `above` rows that lie above it.
  struct Part {
    unsigned above, rows;
    std::size_t first;  // index of a pixel in the batch
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
