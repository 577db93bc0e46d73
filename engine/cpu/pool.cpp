// SPDX-License-Identifier: MIT
#include "engine/cpu/pool.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "engine/cpu/bfloat16_loops.h"
#include "engine/cpu/loops.h"

namespace lockstep::engine::cpu {
namespace {

// Channels of a strip, which stays in registers and the L1 cache.
constexpr std::size_t kStrip = 64;

// Holds the part of a window inside the image: positions [begin, end) of its axis.
struct Span {
  std::size_t begin, end;
};
Span on_image(std::size_t output, std::size_t extent, std::size_t kernel, const PoolSpec& s) {
  const std::size_t start = output * s.stride;  // window's start in the padded image
  return {s.padding > start ? s.padding - start : 0, std::min(kernel, extent + s.padding - start)};
}

// Calls visit(output, corner, vertical, horizontal) for each window of an image. `output` is the
// index of its first channel; `corner` is that of each_place.
template <class Visit>
void each_window(const PoolSpec& s, Visit visit) {
  for (std::size_t oy = 0; oy < s.output_height(); ++oy) {
    const Span vertical = on_image(oy, s.height, s.kernel_height, s);
    for (std::size_t ox = 0; ox < s.output_width(); ++ox) {
      const Span horizontal = on_image(ox, s.width, s.kernel_width, s);
      const std::size_t corner = (oy * s.stride - s.padding) * s.width + ox * s.stride - s.padding;
      visit((oy * s.output_width() + ox) * s.channels, corner, vertical, horizontal);
    }
  }
}

// Calls visit(place, input) with the index of a position in the window and of its first channel in
// the image. `corner` is the pixel of position 0. It wraps if it is outside the image, and adding
// the position undoes that.
template <class Visit>
void each_place(const PoolSpec& s, std::size_t corner, Span vertical, Span horizontal,
                Visit visit) {
  for (std::size_t ky = vertical.begin; ky < vertical.end; ++ky) {
    for (std::size_t kx = horizontal.begin; kx < horizontal.end; ++kx) {
      visit(ky * s.kernel_width + kx, (corner + ky * s.width + kx) * s.channels);
    }
  }
}

using Strip = std::array<float, kStrip>;

// Returns `count` numbers as float32, in place or widened into `strip`.
const float* as_floats(const float* from, std::size_t, Strip&) {
  return from;
}
const float* as_floats(const BFloat16* from, std::size_t count, Strip& strip) {
  widen(from, strip.data(), count);
  return strip.data();
}
void store(const float* from, std::size_t count, float* to) {
  std::copy_n(from, count, to);
}
void store(const float* from, std::size_t count, BFloat16* to) {
  narrow(from, to, count);
}

// Takes over larger numbers (ties: the first). NaN wins over all numbers.
void take_larger(const float* x, std::size_t count, std::int32_t place, float* best,
                 std::int32_t* places) {
  for (std::size_t c = 0; c < count; ++c) {
    const bool wins = (x[c] > best[c]) | ((x[c] != x[c]) & (best[c] == best[c]));
    best[c] = wins ? x[c] : best[c];
    places[c] = wins ? place : places[c];
  }
}

template <class T, class Place>
void max_forward(const PoolSpec& s, const T* x, T* y, Place* workspace) {
  Strip best, widened;
  std::array<std::int32_t, kStrip> places;
  each_window(s, [&](std::size_t output, std::size_t corner, Span vertical, Span horizontal) {
    for (std::size_t strip = 0; strip < s.channels; strip += kStrip) {
      const std::size_t count = std::min(kStrip, s.channels - strip);
      bool first = true;
      each_place(s, corner, vertical, horizontal, [&](std::size_t place, std::size_t input) {
        const float* from = as_floats(x + input + strip, count, widened);
        if (first) {
          std::copy_n(from, count, best.data());
          std::fill_n(places.data(), count, std::int32_t(place));
        } else {
          take_larger(from, count, std::int32_t(place), best.data(), places.data());
        }
        first = false;
      });
      store(best.data(), count, y + output + strip);
      Place* to = workspace + output + strip;
      for (std::size_t c = 0; c < count; ++c) to[c] = Place(places[c]);
    }
  });
}

template <class T, class Place>
void max_backward(const PoolSpec& s, const T* dy, float* dx, const Place* workspace) {
  Strip widened;
  std::array<std::int32_t, kStrip> places;
  each_window(s, [&](std::size_t output, std::size_t corner, Span vertical, Span horizontal) {
    for (std::size_t strip = 0; strip < s.channels; strip += kStrip) {
      const std::size_t count = std::min(kStrip, s.channels - strip);
      const float* gradients = as_floats(dy + output + strip, count, widened);
      const Place* winners = workspace + output + strip;
      for (std::size_t c = 0; c < count; ++c) places[c] = std::int32_t(winners[c]);
      each_place(s, corner, vertical, horizontal, [&](std::size_t place, std::size_t input) {
        float* to = dx + input + strip;
        const std::int32_t here = std::int32_t(place);
        for (std::size_t c = 0; c < count; ++c) {
          to[c] += kept_where(places[c] == here, gradients[c]);
        }
      });
    }
  });
}

template <class T>
void average_forward(const PoolSpec& s, const T* x, T* y) {
  Strip sums, widened;
  each_window(s, [&](std::size_t output, std::size_t corner, Span vertical, Span horizontal) {
    const std::size_t places =
        (vertical.end - vertical.begin) * (horizontal.end - horizontal.begin);
    for (std::size_t strip = 0; strip < s.channels; strip += kStrip) {
      const std::size_t count = std::min(kStrip, s.channels - strip);
      sums.fill(0);
      each_place(s, corner, vertical, horizontal, [&](std::size_t, std::size_t input) {
        const float* from = as_floats(x + input + strip, count, widened);
        for (std::size_t c = 0; c < count; ++c) sums[c] += from[c];
      });
      for (float& sum : sums) sum /= float(places);
      store(sums.data(), count, y + output + strip);
    }
  });
}

template <class T>
void average_backward(const PoolSpec& s, const T* dy, float* dx) {
  Strip widened;
  each_window(s, [&](std::size_t output, std::size_t corner, Span vertical, Span horizontal) {
    const std::size_t places =
        (vertical.end - vertical.begin) * (horizontal.end - horizontal.begin);
    const float share = 1.0f / float(places);
    for (std::size_t strip = 0; strip < s.channels; strip += kStrip) {
      const std::size_t count = std::min(kStrip, s.channels - strip);
      const float* gradients = as_floats(dy + output + strip, count, widened);
      each_place(s, corner, vertical, horizontal, [&](std::size_t, std::size_t input) {
        float* to = dx + input + strip;
        for (std::size_t c = 0; c < count; ++c) to[c] += gradients[c] * share;
      });
    }
  });
}

bool small_windows(const PoolSpec& s) {
  return s.kernel_height * s.kernel_width <= 256;
}

}  // namespace

std::size_t pool_workspace(const PoolSpec& s, std::size_t rows) {
  if (s.kind == PoolKind::kAverage) return 0;
  return rows * s.outputs() * (small_windows(s) ? sizeof(std::uint8_t) : sizeof(std::uint32_t));
}

template <class T>
void pool_forward(const PoolSpec& s, std::size_t rows, const T* x, T* y, std::byte* workspace) {
  const std::size_t inputs = s.inputs(), outputs = s.outputs();
  for (std::size_t r = 0; r < rows; ++r) {
    const T* image = x + r * inputs;
    T* result = y + r * outputs;
    if (s.kind == PoolKind::kAverage) {
      average_forward(s, image, result);
    } else if (small_windows(s)) {
      max_forward(s, image, result, reinterpret_cast<std::uint8_t*>(workspace) + r * outputs);
    } else {
      max_forward(s, image, result, reinterpret_cast<std::uint32_t*>(workspace) + r * outputs);
    }
  }
}

template <class T>
void pool_backward(Library& library, const PoolSpec& s, std::size_t rows, const T* dy, T* dx,
                   const std::byte* workspace) {
  constexpr bool kWide = std::is_same_v<T, float>;
  const std::size_t inputs = s.inputs(), outputs = s.outputs();
  float* const image =
      kWide ? nullptr : reinterpret_cast<float*>(library.scratch(inputs * sizeof(float)));
  for (std::size_t r = 0; r < rows; ++r) {
    const T* from = dy + r * outputs;
    float* to = image;
    if constexpr (kWide) to = dx + r * inputs;
    std::fill_n(to, inputs, 0.0f);
    if (s.kind == PoolKind::kAverage) {
      average_backward(s, from, to);
    } else if (small_windows(s)) {
      max_backward(s, from, to, reinterpret_cast<const std::uint8_t*>(workspace) + r * outputs);
    } else {
      max_backward(s, from, to, reinterpret_cast<const std::uint32_t*>(workspace) + r * outputs);
    }
    if constexpr (!kWide) narrow(image, dx + r * inputs, inputs);
  }
}

template void pool_forward(const PoolSpec&, std::size_t, const float*, float*, std::byte*);
template void pool_forward(const PoolSpec&, std::size_t, const BFloat16*, BFloat16*, std::byte*);
template void pool_backward(Library&, const PoolSpec&, std::size_t, const float*, float*,
                            const std::byte*);
template void pool_backward(Library&, const PoolSpec&, std::size_t, const BFloat16*, BFloat16*,
                            const std::byte*);

}  // namespace lockstep::engine::cpu
