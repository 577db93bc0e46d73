// SPDX-License-Identifier: MIT
#include "engine/cpu/winograd_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/winograd_backward.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <type_traits>

#include "engine/cpu/pair_products.h"
#include "engine/cpu/winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::engine::cpu {
namespace HWY_NAMESPACE {

// Loads the gradient of a tile's 4x4 outputs for kWidth filters: zero outside the image and where
// ReLU cut. Adds the gradients to `bias`.
template <class T>
HWY_INLINE void load_tile(const WinogradShape& s, const TilePlace& place, const T* dy, const T* y,
                          Vector g[4][4], Vector& bias) {
  const std::size_t down = 4 * place.down, across = 4 * place.across;
  for (std::size_t i = 0; i < 4; ++i) {
    for (std::size_t j = 0; j < 4; ++j) {
      if (down + i >= s.output_height() || across + j >= s.output_width()) {
        g[i][j] = zero();
        continue;
      }
      const std::size_t at = ((down + i) * s.output_width() + across + j) * s.filters;
      g[i][j] = load(dy + at);
      if (s.relu) g[i][j] = hn::IfThenElseZero(hn::Gt(load(y + at), zero()), g[i][j]);
      bias = hn::Add(bias, g[i][j]);
    }
  }
}

// Loads the same behind a pool: each gradient goes to the position of its window's maximum.
template <class T>
HWY_INLINE void load_pooled(const WinogradShape& s, const TilePlace& place, const T* dy,
                            const std::uint8_t* places, Vector g[4][4], Vector& bias) {
  const std::size_t down = 2 * place.down, across = 2 * place.across;
  const std::size_t height = s.output_height() / 2, width = s.output_width() / 2;
  const hn::Rebind<std::int32_t, Lanes> words;
  const hn::Rebind<std::uint8_t, Lanes> bytes;
  HWY_UNROLL(2)
  for (std::size_t i = 0; i < 2; ++i) {
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < 2; ++j) {
      Vector value = zero(), at = all(4);
      if (down + i < height && across + j < width) {
        const std::size_t from = ((down + i) * width + across + j) * s.filters;
        value = load(dy + from);
        at = hn::ConvertTo(kLanes, hn::PromoteTo(words, hn::LoadU(bytes, places + from)));
      }
      bias = hn::Add(bias, hn::IfThenElseZero(hn::Lt(at, all(4)), value));
      g[2 * i][2 * j] = hn::IfThenElseZero(hn::Eq(at, zero()), value);
      g[2 * i][2 * j + 1] = hn::IfThenElseZero(hn::Eq(at, all(1)), value);
      g[2 * i + 1][2 * j] = hn::IfThenElseZero(hn::Eq(at, all(2)), value);
      g[2 * i + 1][2 * j + 1] = hn::IfThenElseZero(hn::Eq(at, all(3)), value);
    }
  }
}

// Prefetches the data that load_pooled will read of `tile`, from filter f on. Rows of windows are
// too short for the processor to predict the accesses.
template <class T>
HWY_INLINE void fetch_pooled(const WinogradShape& s, const WinogradBackward<T>& call,
                             std::size_t tile, std::size_t f) {
  const TilePlace place = tile_place(s, tile);
  const std::size_t height = s.output_height() / 2, width = s.output_width() / 2;
  const std::size_t down = std::min(2 * place.down, height - 1);
  const std::size_t across = std::min(2 * place.across, width - 1);
  const std::size_t below = down + 1 < height ? width * s.filters : 0;
  const std::size_t beside = across + 1 < width ? s.filters : 0;
  const std::size_t at = place.image * s.outputs() + (down * width + across) * s.filters + f;
  for (const std::size_t window : {at, at + beside, at + below, at + below + beside}) {
    hwy::Prefetch(call.dy + window);
    hwy::Prefetch(call.places + window);
  }
}

// Computes dM = A dy A' of `count` tiles from number `first` on. Calls keep(tile, filter, row,
// values) with six vectors for each row of dM.
template <class T, class Keep>
HWY_INLINE void transform_gradients(const WinogradShape& s, const WinogradBackward<T>& call,
                                    std::size_t first, std::size_t count, Keep keep) {
  const std::size_t all_tiles = call.images * s.tiles();
  for (std::size_t t = 0; t < count; ++t) {
    const TilePlace place = tile_place(s, first + t);
    for (std::size_t f = 0; f < s.filters; f += kWidth) {
      const std::size_t image = place.image * s.outputs() + f;
      if (s.pool && first + t + 1 < all_tiles) fetch_pooled(s, call, first + t + 1, f);
      Vector g[4][4];
      Vector bias = call.bias == nullptr ? zero() : load(call.bias + f);
      if (s.pool) {
        load_pooled(s, place, call.dy + image, call.places + image, g, bias);
      } else {
        load_tile(s, place, call.dy + image, s.relu ? call.y + image : nullptr, g, bias);
      }
      if (call.bias != nullptr) store(bias, call.bias + f);
      Vector half[6][4];
      HWY_UNROLL(1)
      for (std::size_t j = 0; j < 4; ++j) {
        Vector column[6];
        output_adjoint(g[0][j], g[1][j], g[2][j], g[3][j], column);
        HWY_UNROLL(6)
        for (std::size_t i = 0; i < 6; ++i) half[i][j] = column[i];
      }
      HWY_UNROLL(1)
      for (std::size_t i = 0; i < 6; ++i) {
        Vector row[6];
        output_adjoint(half[i][0], half[i][1], half[i][2], half[i][3], row);
        keep(t, f, i, row);
      }
    }
  }
}

// Stores the transformed gradients as planes of float32.
template <class T>
HWY_NOINLINE void transform_gradients(const WinogradShape& s, const WinogradBackward<T>& call,
                                      std::size_t first, std::size_t count, float* m) {
  const std::size_t stride = s.output_stride();
  transform_gradients(s, call, first, count,
                      [&](std::size_t t, std::size_t f, std::size_t i, const Vector* row) {
                        store_six(row, m + t * s.filters + f + 6 * i * stride, stride);
                      });
}

// Adds V' dM over the tiles to K rows of a panel of the sums, V vectors of columns wide; overwrites
// them if `fresh`.
template <std::size_t K, std::size_t V>
HWY_INLINE void add_products(const float* v, std::size_t channels, const float* m,
                             std::size_t filters, std::size_t tiles, bool fresh, float* sums) {
  Vector all_sums[K][V];
  HWY_UNROLL(8)
  for (std::size_t k = 0; k < K; ++k) {
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) {
      all_sums[k][j] = fresh ? zero() : load(sums + (k * V + j) * kWidth);
    }
  }
  for (std::size_t t = 0; t < tiles; ++t) {
    Vector b[V];
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) b[j] = load(m + t * filters + j * kWidth);
    HWY_UNROLL(8)
    for (std::size_t k = 0; k < K; ++k) {
      const Vector factor = all(v[t * channels + k]);
      HWY_UNROLL(4)
      for (std::size_t j = 0; j < V; ++j) {
        all_sums[k][j] = hn::MulAdd(factor, b[j], all_sums[k][j]);
      }
    }
  }
  HWY_UNROLL(8)
  for (std::size_t k = 0; k < K; ++k) {
    HWY_UNROLL(4)
    for (std::size_t j = 0; j < V; ++j) store(all_sums[k][j], sums + (k * V + j) * kWidth);
  }
}

inline HWY_NOINLINE void add_plane(const WinogradShape& s, const float* v, const float* m,
                                   std::size_t tiles, bool fresh, float* sums) {
  constexpr std::size_t kFew = 4, kMany = kManyRegisters ? 8 : 4;
  for (std::size_t f = 0; f < s.filters;) {
    const std::size_t vectors = panel_vectors(s.filters - f);
    float* panel = sums + f * s.channels;
    if (vectors == 4) {
      for (std::size_t c = 0; c < s.channels; c += kFew) {
        add_products<kFew, 4>(v + c, s.channels, m + f, s.filters, tiles, fresh,
                              panel + c * 4 * kWidth);
      }
    } else if (vectors == 2) {
      for (std::size_t c = 0; c < s.channels; c += kMany) {
        add_products<kMany, 2>(v + c, s.channels, m + f, s.filters, tiles, fresh,
                               panel + c * 2 * kWidth);
      }
    } else {
      for (std::size_t c = 0; c < s.channels; c += 8) {
        add_products<8, 1>(v + c, s.channels, m + f, s.filters, tiles, fresh, panel + c * kWidth);
      }
    }
    f += vectors * kWidth;
  }
}

// Sums the gradients of inputs as float32: in dx itself if that is float32 and the tiles are whole,
// else in a padded image.
template <class T>
class InputGradient {
 public:
  InputGradient(const WinogradShape& shape, const PaddedImage<T>& layout, T* dx, float* memory)
      : shape_(shape), layout_(layout), dx_(dx), memory_(memory) {}
  // Tiles come in order: the first of an image clears it, and the last one stores it.
  float* begin(std::size_t image) {
    if constexpr (kWide) {
      if (shape_.whole()) memory_ = dx_ + image * shape_.inputs();
    }
    if (image != open_) std::memset(memory_, 0, shape_.padded_image() * sizeof(float));
    open_ = image;
    return memory_;
  }
  void end(std::size_t image) {
    if (kWide && shape_.whole()) return;
    const std::size_t row = shape_.width * shape_.channels;
    for (std::size_t y = 0; y < shape_.height; ++y) {
      T* const to = dx_ + image * shape_.inputs() + y * row;
      const float* const from = memory_ + layout_.corner(y);
      std::size_t i = 0;
      for (; i + 2 * kWidth <= row; i += 2 * kWidth) {
        store_two<false>(kLanes, load(from + i), load(from + i + kWidth), to + i);
      }
      if (i < row) store(load(from + i), to + i);
    }
  }

 private:
  static constexpr bool kWide = std::is_same_v<T, float>;
  const WinogradShape& shape_;
  const PaddedImage<T>& layout_;
  T* dx_;
  float* memory_;
  std::size_t open_ = ~std::size_t{0};
};

// Adds B dV B' of `count` tiles from number `first` on to dx.
template <class T>
HWY_NOINLINE void transform_back(const WinogradShape& s, std::size_t first, std::size_t count,
                                 const float* v, InputGradient<T>& image) {
  const std::size_t stride = s.input_stride(), row = s.padded_width() * s.channels;
  for (std::size_t t = 0; t < count; ++t) {
    const TilePlace place = tile_place(s, first + t);
    float* tile = image.begin(place.image) + 4 * (place.down * row + place.across * s.channels);
    for (std::size_t c = 0; c < s.channels; c += kWidth) {
      const float* from = v + t * s.channels + c;
      Vector half[6][6];
      HWY_UNROLL(1)
      for (std::size_t j = 0; j < 6; ++j) {
        Vector d[6], column[6];
        load_six(from + j * stride, 6 * stride, d);
        input_adjoint(d[0], d[1], d[2], d[3], d[4], d[5], column);
        HWY_UNROLL(6)
        for (std::size_t i = 0; i < 6; ++i) half[i][j] = column[i];
      }
      HWY_UNROLL(1)
      for (std::size_t i = 0; i < 6; ++i) {
        Vector x[6];
        input_adjoint(half[i][0], half[i][1], half[i][2], half[i][3], half[i][4], half[i][5], x);
        float* to = tile + i * row + c;
        HWY_UNROLL(6)
        for (std::size_t j = 0; j < 6; ++j) {
          store(hn::Add(load(to + j * s.channels), x[j]), to + j * s.channels);
        }
      }
    }
    if ((first + t + 1) % s.tiles() == 0) image.end(place.image);
  }
}

// Returns the pairs in a plane of gradients. The bfloat16 planes of the inputs hold pairs of tiles,
// [tiles / 2, channels]. Those of the gradients hold first the tiles, [tiles, filters], then their
// pairs, [tiles / 2, filters]. The first tile of a pair is kept there as float32 until the second
// one is computed. If the number of tiles is odd, the last one is paired with zeros.
HWY_INLINE std::uint32_t* pairs_of(const WinogradShape& s, float* m) {
  return reinterpret_cast<std::uint32_t*>(m + s.block() * s.filters / 2);
}

HWY_NOINLINE void pairs_of_inputs(const WinogradShape& s, PaddedImage<BFloat16>& image,
                                  std::size_t first, std::size_t count, float* v) {
  const std::size_t stride = s.input_stride();
  alignas(64) float second[6 * kWidth] = {};
  const auto place = [&](std::size_t t, std::size_t c, std::size_t i) {
    return v + 6 * i * stride + t / 2 * s.channels + c;
  };
  const auto pack = [&](float* to) {
    pack_pairs(second, reinterpret_cast<std::uint32_t*>(to), stride, nullptr, 0);
  };
  transform_inputs(s, image, first, count,
                   [&](std::size_t t, std::size_t c, std::size_t i, const Vector* row) {
                     if (t % 2 == 0) return store_six(row, place(t, c, i), stride);
                     store_six(row, second, kWidth);
                     pack(place(t, c, i));
                   });
  if (count % 2 == 0) return;
  std::fill_n(second, 6 * kWidth, 0.0f);
  for (std::size_t c = 0; c < s.channels; c += kWidth) {
    for (std::size_t i = 0; i < 6; ++i) pack(place(count - 1, c, i));
  }
}

HWY_NOINLINE void pairs_of_gradients(const WinogradShape& s, const WinogradBackward<BFloat16>& call,
                                     std::size_t first, std::size_t count, float* m) {
  const std::size_t stride = s.output_stride(), row_words = s.filters / 2;
  alignas(64) float second[6 * kWidth] = {};
  const auto place = [&](std::size_t t, std::size_t f, std::size_t i) {
    return pairs_of(s, m + 6 * i * stride) + t / 2 * s.filters + f;
  };
  const auto pack = [&](std::size_t t, std::size_t f, std::size_t i) {
    auto* const tiles = reinterpret_cast<std::uint32_t*>(m + 6 * i * stride);
    pack_pairs(second, place(t, f, i), stride, tiles + t / 2 * 2 * row_words + f / 2, row_words);
  };
  transform_gradients(s, call, first, count,
                      [&](std::size_t t, std::size_t f, std::size_t i, const Vector* row) {
                        if (t % 2 == 0) {
                          return store_six(row, reinterpret_cast<float*>(place(t, f, i)), stride);
                        }
                        store_six(row, second, kWidth);
                        pack(t, f, i);
                      });
  if (count % 2 == 0) return;
  std::fill_n(second, 6 * kWidth, 0.0f);
  for (std::size_t f = 0; f < s.filters; f += kWidth) {
    for (std::size_t i = 0; i < 6; ++i) pack(count - 1, f, i);
  }
}

// Computes the same as `backward`, with pair products within a plane.
HWY_INLINE void backward_by_pairs(const WinogradShape& s, const WinogradBackward<BFloat16>& call) {
  float* v = aligned(call.scratch);
  float* m = v + kPlanes * s.input_stride();
  float* padded = aligned(m + kPlanes * s.output_stride());
  PaddedImage<BFloat16> image(s, call.x, reinterpret_cast<BFloat16*>(padded));
  InputGradient<BFloat16> gradient(s, image, call.dx, aligned(padded + s.padded_image()));
  const auto* const weights = reinterpret_cast<const std::uint32_t*>(call.weights);
  const std::size_t all_tiles = call.images * s.tiles(), plane = s.plane();
  for (std::size_t first = 0; first < all_tiles; first += s.block()) {
    const std::size_t count = std::min(s.block(), all_tiles - first);
    pairs_of_gradients(s, call, first, count, m);
    if (call.sums != nullptr) pairs_of_inputs(s, image, first, count, v);
    for (std::size_t p = 0; p < kPlanes; ++p) {
      float* inputs = v + p * s.input_stride();
      float* outputs = m + p * s.output_stride();
      if (call.sums != nullptr) {
        add_pairs(reinterpret_cast<const std::uint32_t*>(inputs), pairs_of(s, outputs),
                  (count + 1) / 2, s.channels, s.filters, call.fresh && first == 0,
                  call.sums + p * plane);
      }
      if (call.dx != nullptr) {
        multiply_pairs(reinterpret_cast<const std::uint32_t*>(outputs), weights + p * (plane / 2),
                       count, s.filters / 2, s.channels, inputs);
      }
    }
    if (call.dx != nullptr) transform_back(s, first, count, v, gradient);
  }
}

// Takes blocks of tiles plane by plane: first the sums of the weights' gradients, then dV in the
// memory of V.
template <class T>
HWY_INLINE void backward(const WinogradShape& s, const WinogradBackward<T>& call) {
  float* v = aligned(call.scratch);
  float* m = v + kPlanes * s.input_stride();
  float* padded = aligned(m + kPlanes * s.output_stride());
  PaddedImage<T> image(s, call.x, reinterpret_cast<T*>(padded));
  InputGradient<T> gradient(s, image, call.dx, aligned(padded + s.padded_image()));
  const std::size_t all_tiles = call.images * s.tiles(), plane = s.plane();
  for (std::size_t first = 0; first < all_tiles; first += s.block()) {
    const std::size_t count = std::min(s.block(), all_tiles - first);
    transform_gradients(s, call, first, count, m);
    if (call.sums != nullptr) transform_inputs(s, image, first, count, v);
    for (std::size_t p = 0; p < kPlanes; ++p) {
      float* inputs = v + p * s.input_stride();
      const float* outputs = m + p * s.output_stride();
      if (call.sums != nullptr) {
        add_plane(s, inputs, outputs, count, call.fresh && first == 0, call.sums + p * plane);
      }
      if (call.dx != nullptr) {
        multiply(outputs, call.weights + p * plane, count, s.filters, s.channels, inputs);
      }
    }
    if (call.dx != nullptr) transform_back(s, first, count, v, gradient);
  }
}

bool WinogradHasPairs() {
  return HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86;
}
void WinogradBackwardWide(const WinogradShape& s, const WinogradBackward<float>& call) {
  backward(s, call);
}
void WinogradBackwardNarrow(const WinogradShape& s, const WinogradBackward<BFloat16>& call) {
  if (s.pairs) return backward_by_pairs(s, call);
  backward(s, call);
}

}  // namespace HWY_NAMESPACE
}  // namespace lockstep::engine::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::engine::cpu {

HWY_EXPORT(WinogradHasPairs);
HWY_EXPORT(WinogradBackwardWide);
HWY_EXPORT(WinogradBackwardNarrow);

bool winograd_has_pairs() {
  return has_pair_products() && HWY_DYNAMIC_DISPATCH(WinogradHasPairs)();
}

void winograd_backward(const WinogradShape& shape, const WinogradBackward<float>& call) {
  HWY_DYNAMIC_DISPATCH(WinogradBackwardWide)(shape, call);
}

void winograd_backward(const WinogradShape& shape, const WinogradBackward<BFloat16>& call) {
  HWY_DYNAMIC_DISPATCH(WinogradBackwardNarrow)(shape, call);
}

}  // namespace lockstep::engine::cpu
#endif
