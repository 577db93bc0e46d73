// SPDX-License-Identifier: MIT
// Definitions shared by the Winograd kernels, once per instruction set (Highway's include idiom):
// vectors, the transforms of six and four values, the loop over tiles, the layout of panels.
//
// The matrices of F(4x4, 3x3), with interpolation points 0, 1, -1, 2, -2 and infinity:
//        4  0 -5  0  1  0          1/4    0    0
//        0 -4 -4  1  1  0         -1/6 -1/6 -1/6         1  1  1  1  1  0
//   B' = 0  4 -4 -1  1  0    G =  -1/6  1/6 -1/6    A' = 0  1 -1  2 -2  0
//        0 -2 -1  2  1  0         1/24 1/12  1/6         0  1  1  4  4  0
//        0  2 -1 -2  1  0         1/24 -1/12 1/6         0  1 -1  8 -8  1
//        0  4  0 -5  0  1            0    0    1
// Forward: y = A' [(G g G') . (B' x B)] A, where . multiplies element by element and sums over
// channels. Its adjoint: dM = A dy A', dx = B (dM . U) B', dg = G' (V . dM) G.
#if defined(LOCKSTEP_ENGINE_CPU_WINOGRAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_ENGINE_CPU_WINOGRAD_INL_H_
#undef LOCKSTEP_ENGINE_CPU_WINOGRAD_INL_H_
#else
#define LOCKSTEP_ENGINE_CPU_WINOGRAD_INL_H_
#endif

#include <cstring>

#include "engine/cpu/vectors-inl.h"
#include "engine/cpu/winograd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {
constexpr std::size_t kPlanes = WinogradShape::kPlanes;

template <class T>
HWY_INLINE void load_six(const T* from, std::size_t stride, Vector* to) {
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < 6; ++i) to[i] = load(from + i * stride);
}
HWY_INLINE void store_six(const Vector* from, float* to, std::size_t stride) {
  HWY_UNROLL(6)
  for (std::size_t i = 0; i < 6; ++i) store(from[i], to + i * stride);
}

// Applies B' to six values in place.
HWY_INLINE void input_transform(Vector& a, Vector& b, Vector& c, Vector& d, Vector& e, Vector& f) {
  const Vector two = all(2), four = all(4), five = all(5);
  const Vector t0 = hn::MulAdd(four, a, hn::NegMulAdd(five, c, e));
  const Vector t5 = hn::MulAdd(four, b, hn::NegMulAdd(five, d, f));
  const Vector p = hn::NegMulAdd(four, c, e), q = hn::NegMulAdd(four, b, d);
  const Vector r = hn::Sub(e, c), s = hn::Sub(d, b);
  a = t0;
  b = hn::Add(p, q);
  c = hn::Sub(p, q);
  d = hn::MulAdd(two, s, r);
  e = hn::NegMulAdd(two, s, r);
  f = t5;
}

// Applies A' to six values; the result has four.
HWY_INLINE void output_transform(Vector a, Vector b, Vector c, Vector d, Vector e, Vector f,
                                 Vector* y) {
  const Vector p = hn::Add(b, c), q = hn::Sub(b, c), r = hn::Add(d, e), s = hn::Sub(d, e);
  y[0] = hn::Add(hn::Add(a, p), r);
  y[1] = hn::MulAdd(all(2), s, q);
  y[2] = hn::MulAdd(all(4), r, p);
  y[3] = hn::Add(hn::MulAdd(all(8), s, q), f);
}

// Applies A to four values; the result has six.
HWY_INLINE void output_adjoint(Vector a, Vector b, Vector c, Vector d, Vector* m) {
  const Vector p = hn::Add(a, c), q = hn::Add(b, d);
  const Vector r = hn::MulAdd(all(4), c, a), s = hn::MulAdd(all(8), d, hn::Add(b, b));
  m[0] = a;
  m[1] = hn::Add(p, q);
  m[2] = hn::Sub(p, q);
  m[3] = hn::Add(r, s);
  m[4] = hn::Sub(r, s);
  m[5] = d;
}

// Applies B to six values; the result has six.
HWY_INLINE void input_adjoint(Vector a, Vector b, Vector c, Vector d, Vector e, Vector f,
                              Vector* x) {
  const Vector two = all(2), four = all(4), five = all(5);
  const Vector p = hn::Add(b, c), q = hn::Sub(b, c), r = hn::Add(d, e), s = hn::Sub(d, e);
  x[0] = hn::Mul(four, a);
  x[1] = hn::NegMulAdd(two, s, hn::Mul(four, hn::Sub(f, q)));
  x[2] = hn::NegMulAdd(five, a, hn::NegMulAdd(four, p, hn::Neg(r)));
  x[3] = hn::NegMulAdd(five, f, hn::MulAdd(two, s, q));
  x[4] = hn::Add(hn::Add(a, p), r);
  x[5] = f;
}

// Applies G to three values; the result has six: 1/4 a, -1/6 (a + c +- b), 1/24 a + 1/6 c +- 1/12
// b, c.
HWY_INLINE void weight_transform(Vector a, Vector b, Vector c, Vector* u) {
  const Vector sum = hn::Add(a, c);
  const Vector far = hn::MulAdd(all(1.0f / 24), a, hn::Mul(all(1.0f / 6), c));
  u[0] = hn::Mul(all(0.25f), a);
  u[1] = hn::Mul(all(-1.0f / 6), hn::Add(sum, b));
  u[2] = hn::Mul(all(-1.0f / 6), hn::Sub(sum, b));
  u[3] = hn::MulAdd(all(1.0f / 12), b, far);
  u[4] = hn::NegMulAdd(all(1.0f / 12), b, far);
  u[5] = c;
}

// Applies G' to six values; the result has three.
HWY_INLINE void weight_adjoint(Vector a, Vector b, Vector c, Vector d, Vector e, Vector f,
                               Vector* g) {
  const Vector near = hn::Add(b, c), far = hn::Add(d, e);
  const Vector base = hn::NegMulAdd(all(4.0f), near, far);  // 24 times the common part of both ends
  g[0] = hn::MulAdd(all(1.0f / 24), base, hn::Mul(all(0.25f), a));
  g[1] = hn::MulAdd(all(1.0f / 12), hn::Sub(d, e), hn::Mul(all(1.0f / 6), hn::Sub(c, b)));
  g[2] = hn::MulAdd(all(1.0f / 6), hn::Sub(far, near), f);
}

// Returns the index of element (row, column) of a `rows` x `columns` matrix in panels. Panels are
// consecutive, each row by row.
HWY_INLINE std::size_t in_panels(std::size_t rows, std::size_t columns, std::size_t row,
                                 std::size_t column) {
  std::size_t begin = 0;
  for (;;) {
    const std::size_t width = panel_vectors(columns - begin) * kWidth;
    if (column < begin + width) return begin * rows + row * width + (column - begin);
    begin += width;
  }
}

// Holds the location of a tile in a call: tile `number` counts through all images.
struct TilePlace {
  std::size_t image, down, across;
};
HWY_INLINE TilePlace tile_place(const WinogradShape& shape, std::size_t number) {
  const std::size_t in_image = number % shape.tiles();
  return {number / shape.tiles(), in_image / shape.tiles_across(), in_image % shape.tiles_across()};
}

// Holds the image whose tiles are read: the image itself if it consists of whole tiles, else a copy
// padded with zeros.
template <class T>
class PaddedImage {
 public:
  PaddedImage(const WinogradShape& shape, const T* x, T* memory)
      : shape_(shape), x_(x), memory_(memory) {
    if (!shape.whole()) std::fill_n(memory, shape.padded_image(), T());
  }
  const T* at(std::size_t image) {
    const T* from = x_ + image * shape_.inputs();
    if (shape_.whole()) return from;
    if (image != loaded_) {
      const std::size_t row = shape_.width * shape_.channels;
      for (std::size_t y = 0; y < shape_.height; ++y) {
        std::memcpy(memory_ + corner(y), from + y * row, row * sizeof(T));
      }
      loaded_ = image;
    }
    return memory_;
  }
  // Returns where row y of the image begins in the padded one.
  std::size_t corner(std::size_t y) const {
    return ((y + shape_.padding) * shape_.padded_width() + shape_.padding) * shape_.channels;
  }

 private:
  const WinogradShape& shape_;
  const T* x_;
  T* memory_;
  std::size_t loaded_ = ~std::size_t{0};
};

// Computes V = B' x B of `count` tiles from number `first` on. Calls keep(tile, channel, row,
// values) with six vectors for each row of V.
template <class T, class Keep>
HWY_INLINE void transform_inputs(const WinogradShape& shape, PaddedImage<T>& image,
                                 std::size_t first, std::size_t count, Keep keep) {
  const std::size_t channels = shape.channels;
  const std::size_t row = shape.padded_width() * channels;
  for (std::size_t t = 0; t < count; ++t) {
    const TilePlace place = tile_place(shape, first + t);
    const T* tile = image.at(place.image) + 4 * (place.down * row + place.across * channels);
    for (std::size_t c = 0; c < channels; c += kWidth) {
      Vector half[6][6];
      HWY_UNROLL(1)
      for (std::size_t j = 0; j < 6; ++j) {
        Vector d[6];
        load_six(tile + j * channels + c, row, d);
        input_transform(d[0], d[1], d[2], d[3], d[4], d[5]);
        HWY_UNROLL(6)
        for (std::size_t i = 0; i < 6; ++i) half[i][j] = d[i];
      }
      HWY_UNROLL(1)
      for (std::size_t i = 0; i < 6; ++i) {
        Vector* d = half[i];
        input_transform(d[0], d[1], d[2], d[3], d[4], d[5]);
        keep(t, c, i, d);
      }
    }
  }
}

// Stores the transformed inputs as planes of float32.
template <class T>
HWY_NOINLINE void transform_inputs(const WinogradShape& shape, PaddedImage<T>& image,
                                   std::size_t first, std::size_t count, float* v) {
  const std::size_t stride = shape.input_stride();
  transform_inputs(shape, image, first, count,
                   [&](std::size_t t, std::size_t c, std::size_t i, const Vector* row) {
                     store_six(row, v + t * shape.channels + c + 6 * i * stride, stride);
                   });
}

// Computes C = A P, with A [rows, depth] at `depth` floats per row, P a panel of `V` vectors, and C
// at `stride` floats per row. `rows` is a multiple of R; R x V sums stay in registers.
template <std::size_t R, std::size_t V>
HWY_INLINE void multiply_panel(const float* a, const float* panel, std::size_t rows,
                               std::size_t depth, float* c, std::size_t stride) {
  for (std::size_t r = 0; r < rows; r += R) {
    Vector sums[R][V];
    HWY_UNROLL(12)
    for (std::size_t i = 0; i < R; ++i) {
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < V; ++j) sums[i][j] = zero();
    }
    const float* row = a + r * depth;
    for (std::size_t k = 0; k < depth; ++k) {
      Vector b[V];
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < V; ++j) b[j] = load(panel + (k * V + j) * kWidth);
      HWY_UNROLL(12)
      for (std::size_t i = 0; i < R; ++i) {
        const Vector factor = all(row[i * depth + k]);
        HWY_UNROLL(4)
        for (std::size_t j = 0; j < V; ++j) sums[i][j] = hn::MulAdd(factor, b[j], sums[i][j]);
      }
    }
    float* to = c + r * stride;
    HWY_UNROLL(12)
    for (std::size_t i = 0; i < R; ++i) {
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < V; ++j) store(sums[i][j], to + i * stride + j * kWidth);
    }
  }
}

// Computes C = A B, with B [depth, columns] in panels. `rows` is rounded up to a multiple of 12;
// the contents of the extra rows do not matter.
inline HWY_NOINLINE void multiply(const float* a, const float* b, std::size_t rows,
                                  std::size_t depth, std::size_t columns, float* c) {
  const std::size_t six = (rows + 5) / 6 * 6, twelve = (rows + 11) / 12 * 12;
  for (std::size_t column = 0; column < columns;) {
    const std::size_t vectors = panel_vectors(columns - column);
    const float* panel = b + column * depth;
    if (vectors == 4) {
      multiply_panel<6, 4>(a, panel, six, depth, c + column, columns);
    } else if (vectors == 2) {
      constexpr std::size_t kRows = kManyRegisters ? 12 : 6;
      multiply_panel<kRows, 2>(a, panel, kManyRegisters ? twelve : six, depth, c + column, columns);
    } else {
      multiply_panel<12, 1>(a, panel, twelve, depth, c + column, columns);
    }
    column += vectors * kWidth;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#endif
