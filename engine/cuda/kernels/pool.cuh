// SPDX-License-Identifier: MIT
// Forward a thread goes through the window of an output, row by row. Backward it goes through the
// windows that cover an input, row by row, and adds what they have for it: each sum is one
// thread's, in a fixed order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <grid.cuh>

#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/pool.h"

namespace lockstep::engine::cuda {

// Numbers [begin, end) of an axis.
struct Stretch {
  unsigned begin, end;
  __device__ unsigned size() const { return end - begin; }
};

// The pixels of a window that lie on the image.
__device__ inline Stretch pixels_of(unsigned window, unsigned extent, unsigned kernel,
                                    const PoolSizes& s) {
  const unsigned begin = window * s.stride, end = begin + kernel;  // in the padded image
  return {begin > s.padding ? begin - s.padding : 0,
          end - s.padding < extent ? end - s.padding : extent};
}

// The windows that cover a pixel.
__device__ inline Stretch windows_of(unsigned pixel, unsigned windows, unsigned kernel,
                                     const PoolSizes& s) {
  const unsigned at = pixel + s.padding, last = at / s.stride + 1;
  return {at < kernel ? 0 : (at - kernel) / s.stride + 1, last < windows ? last : windows};
}

// The number of a pixel in its window.
__device__ inline std::uint32_t place_in(unsigned oy, unsigned ox, unsigned iy, unsigned ix,
                                         const PoolSizes& s) {
  return (iy + s.padding - oy * s.stride) * s.kernel_width + ix + s.padding - ox * s.stride;
}

// A thread's pixel and first channel, of an image of `width` pixels a row.
struct Site {
  unsigned y, x, channel;
};

// n / d, fast where d is a power of two, as groups of channels mostly are.
__device__ inline unsigned quotient(unsigned n, unsigned d) {
  return (d & (d - 1)) == 0 ? n >> lowest_bit(d) : n / d;
}

// Calls visit(row, site) for each group of kWidth channels of each image in use that is the
// thread's.
template <unsigned kWidth, class Visit>
__device__ void each_site(const StepState* state, const PoolSizes& s, unsigned height,
                          unsigned width, Visit visit) {
  const unsigned groups = s.channels / kWidth, sites = height * width * groups;
  for (std::size_t row = block_row(); row < std::size_t(state->examples); row += block_rows()) {
    for (unsigned i = block() * threads() + thread(); i < sites; i += blocks() * threads()) {
      const unsigned pixel = quotient(i, groups), y = pixel / width;
      visit(row, Site{y, pixel - y * width, (i - pixel * groups) * kWidth});
    }
  }
}

template <class T, unsigned kWidth, class Place>
__device__ void pool_window(const PoolForward& a, const T* image, Site site, T* y, Place* places,
                            bool aligned) {
  const PoolSizes& s = a.sizes;
  const Stretch rows = pixels_of(site.y, s.height, s.kernel_height, s);
  const Stretch columns = pixels_of(site.x, s.width, s.kernel_width, s);
  Pack<float, kWidth> result{};  // the largest so far, or the sum
  Pack<Place, kWidth> winners{};
  bool first = true;
  for (unsigned iy = rows.begin; iy < rows.end; ++iy) {
    for (unsigned ix = columns.begin; ix < columns.end; ++ix) {
      const std::size_t at = (std::size_t(iy) * s.width + ix) * s.channels + site.channel;
      const Pack<float, kWidth> values = widened(load<kWidth>(image + at, aligned));
      const Place place = Place(place_in(site.y, site.x, iy, ix, s));
      for (unsigned w = 0; w < kWidth; ++w) {
        const float value = values.values[w];
        float& so_far = result.values[w];
        // A number that is none (NaN) wins over all numbers, so that it is seen further on.
        const bool wins = first || value > so_far || (value != value && so_far == so_far);
        if (!s.largest) {
          so_far += value;
        } else if (wins) {
          so_far = value;
          winners.values[w] = place;
        }
      }
      first = false;
    }
  }
  const float pixels = float(rows.size() * columns.size());
  for (unsigned w = 0; w < kWidth && !s.largest; ++w) result.values[w] /= pixels;
  store(narrowed<T>(result), y, aligned);
  if (!s.largest) return;
  for (unsigned w = 0; w < kWidth; ++w)
    if (s.relu && !(result.values[w] > 0)) winners.values[w] = Place(-1);
  store(winners, places, aligned);
}

template <class T, unsigned kWidth, class Place>
__device__ void pool_windows(const PoolForward& a) {
  const PoolSizes& s = a.sizes;
  const T* const x = static_cast<const T*>(a.x);
  T* const y = static_cast<T*>(a.y);
  Place* const places = static_cast<Place*>(a.places);
  const bool aligned = packs_at(x, y, places);
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  each_site<kWidth>(a.state, s, s.output_height, s.output_width, [&](std::size_t row, Site site) {
    const std::size_t at =
        row * outputs + (std::size_t(site.y) * s.output_width + site.x) * s.channels + site.channel;
    pool_window<T, kWidth>(a, x + row * inputs, site, y + at, s.largest ? places + at : nullptr,
                           aligned);
  });
}

// Calls visit(width of a group, a place) with those that the sizes ask for.
template <class Visit>
__device__ void pool_ways(const PoolSizes& s, Visit visit) {
  const bool whole = s.channels % kPack == 0;
  if (small_places(std::size_t(s.kernel_height) * s.kernel_width)) {
    whole ? visit(Width<kPack>(), PoolPlace()) : visit(Width<1>(), PoolPlace());
  } else {
    whole ? visit(Width<kPack>(), LargePoolPlace()) : visit(Width<1>(), LargePoolPlace());
  }
}

template <class T>
__device__ void run(const PoolForward& a) {
  pool_ways(a.sizes, [&](auto width, auto place) { pool_windows<T, width(), decltype(place)>(a); });
}

// What the windows of an image have for one input.
template <class T, unsigned kWidth, class Place>
__device__ Pack<float, kWidth> gather(const PoolBackward& a, const T* dy, const Place* places,
                                      Site site, bool aligned) {
  const PoolSizes& s = a.sizes;
  const Stretch rows = windows_of(site.y, s.output_height, s.kernel_height, s);
  const Stretch columns = windows_of(site.x, s.output_width, s.kernel_width, s);
  Pack<float, kWidth> sums{};
  for (unsigned oy = rows.begin; oy < rows.end; ++oy) {
    for (unsigned ox = columns.begin; ox < columns.end; ++ox) {
      const std::size_t at = (std::size_t(oy) * s.output_width + ox) * s.channels + site.channel;
      const Pack<float, kWidth> g = widened(load<kWidth>(dy + at, aligned));
      if (s.largest) {
        const auto winners = load<kWidth>(places + at, aligned);
        const Place place = Place(place_in(oy, ox, site.y, site.x, s));
        for (unsigned w = 0; w < kWidth; ++w)
          sums.values[w] += winners.values[w] == place ? g.values[w] : 0.0f;
      } else {
        const float share = 1.0f / float(pixels_of(oy, s.height, s.kernel_height, s).size() *
                                         pixels_of(ox, s.width, s.kernel_width, s).size());
        for (unsigned w = 0; w < kWidth; ++w) sums.values[w] += g.values[w] * share;
      }
    }
  }
  return sums;
}

template <class T, unsigned kWidth, class Place>
__device__ void gather_all(const PoolBackward& a) {
  const PoolSizes& s = a.sizes;
  const T* const dy = static_cast<const T*>(a.dy);
  T* const dx = static_cast<T*>(a.dx);
  const Place* const all = static_cast<const Place*>(a.places);
  const bool aligned = packs_at(dy, dx, all);
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  each_site<kWidth>(a.state, s, s.height, s.width, [&](std::size_t row, Site site) {
    const std::size_t at =
        row * inputs + (std::size_t(site.y) * s.width + site.x) * s.channels + site.channel;
    const Place* const places = s.largest ? all + row * outputs : nullptr;
    store(narrowed<T>(gather<T, kWidth>(a, dy + row * outputs, places, site, aligned)), dx + at,
          aligned);
  });
}

// Two by two inputs, and the windows that they have: kWindows by kWindows, of which the last begins
// at the first input. In the padded image inputs and windows begin at even numbers.
template <class T, unsigned kWidth, unsigned kWindows>
class FourInputs {
 public:
  static constexpr unsigned kKernel = kWindows + 1;
  __device__ FourInputs(const PoolBackward& a, const T* dy, const PoolPlace* places, Site site,
                        bool aligned)
      : s_(a.sizes), site_(site) {
    repeat<kWindows * kWindows>([&](unsigned n) {
      const unsigned oy = site.y + n / kWindows - (kWindows - 1),
                     ox = site.x + n % kWindows - (kWindows - 1);
      there_[n] = oy < s_.output_height && ox < s_.output_width;  // numbers below zero wrap
      if (!there_[n]) return;
      const std::size_t at = (std::size_t(oy) * s_.output_width + ox) * s_.channels + site.channel;
      dy_[n] = load<kWidth>(dy + at, aligned);
      winners_[n] = load<kWidth>(places + at, aligned);
    });
  }
  __device__ void store_all(T* dx, bool aligned) const {
    repeat<4>([&](unsigned i) {
      const unsigned y = 2 * site_.y + i / 2 - s_.padding, x = 2 * site_.x + i % 2 - s_.padding;
      if (y >= s_.height || x >= s_.width) return;
      Pack<float, kWidth> sums{};
      repeat<kWindows * kWindows>([&](unsigned n) {
        // The input's place in the window.
        const unsigned py = i / 2 + 2 * (kWindows - 1 - n / kWindows),
                       px = i % 2 + 2 * (kWindows - 1 - n % kWindows);
        if (!there_[n] || py >= kKernel || px >= kKernel) return;
        for (unsigned w = 0; w < kWidth; ++w)
          sums.values[w] +=
              winners_[n].values[w] == PoolPlace(py * kKernel + px) ? wide(dy_[n].values[w]) : 0.0f;
      });
      const std::size_t at = (std::size_t(y) * s_.width + x) * s_.channels + site_.channel;
      store(narrowed<T>(sums), dx + at, aligned);
    });
  }

 private:
  const PoolSizes& s_;
  Site site_;
  Pack<T, kWidth> dy_[kWindows * kWindows];
  Pack<PoolPlace, kWidth> winners_[kWindows * kWindows];
  bool there_[kWindows * kWindows];
};

template <class T, unsigned kWidth, unsigned kWindows>
__device__ void gather_fours_by(const PoolBackward& a) {
  const PoolSizes& s = a.sizes;
  const T* const dy = static_cast<const T*>(a.dy);
  T* const dx = static_cast<T*>(a.dx);
  const PoolPlace* const places = static_cast<const PoolPlace*>(a.places);
  const bool aligned = packs_at(dy, dx, places);
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  each_site<kWidth>(a.state, s, (s.height + s.padding + 1) / 2, (s.width + s.padding + 1) / 2,
                    [&](std::size_t row, Site site) {
                      const FourInputs<T, kWidth, kWindows> four(
                          a, dy + row * outputs, places + row * outputs, site, aligned);
                      four.store_all(dx + row * inputs, aligned);
                    });
}

template <class T, unsigned kWindows>
__device__ void gather_fours(const PoolBackward& a) {
  a.sizes.channels % kPack == 0 ? gather_fours_by<T, kPack, kWindows>(a)
                                : gather_fours_by<T, 1, kWindows>(a);
}

template <class T>
__device__ void run(const PoolBackward& a) {
  if (pools_by_four(a.sizes))
    return a.sizes.kernel_width == 2 ? gather_fours<T, 1>(a) : gather_fours<T, 2>(a);
  pool_ways(a.sizes, [&](auto width, auto place) { gather_all<T, width(), decltype(place)>(a); });
}

template <class T>
__device__ void run(const QuadPoolForward& a) {
  const PoolSizes& s = a.sizes;
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  each_site<kPack>(
      a.state, s, s.output_height, s.output_width, [&](std::size_t row, const Site& site) {
        const T* const corner = static_cast<const T*>(a.x) + row * inputs +
                                (std::size_t(2 * site.y) * s.width + 2 * site.x) * s.channels +
                                site.channel;
        Pack<T, kPack> window[4];
        repeat<4>([&](unsigned i) {
          window[i] =
              load<kPack>(corner + (std::size_t(i / 2) * s.width + i % 2) * s.channels, true);
        });
        Pack<T, kPack> y;
        Pack<PoolPlace, kPack> places;
        for (unsigned w = 0; w < kPack; ++w) {
          float largest = wide(window[0].values[w]);
          PoolPlace place = 0;
          repeat<3>([&](unsigned i) {
            const float value = wide(window[i + 1].values[w]);
            // As above, without a branch for each number.
            const bool wins = !(value <= largest) & (largest == largest);
            largest = wins ? value : largest;
            place = wins ? PoolPlace(i + 1) : place;
          });
          y.values[w] = narrow<T>(largest);
          places.values[w] = s.relu & !(largest > 0) ? PoolPlace(-1) : place;
        }
        const std::size_t at = row * outputs +
                               (std::size_t(site.y) * s.output_width + site.x) * s.channels +
                               site.channel;
        store(y, static_cast<T*>(a.y) + at, true);
        store(places, static_cast<PoolPlace*>(a.places) + at, true);
      });
}

// Inputs that are in no window, at the lower and right edge, have a site, too.
template <class T>
__device__ void run(const QuadPoolBackward& a) {
  const PoolSizes& s = a.sizes;
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  each_site<kPack>(
      a.state, s, (s.height + 1) / 2, (s.width + 1) / 2, [&](std::size_t row, const Site& site) {
        Pack<T, kPack> dy{};
        Pack<PoolPlace, kPack> places{};
        if (site.y < s.output_height && site.x < s.output_width) {
          const std::size_t at = row * outputs +
                                 (std::size_t(site.y) * s.output_width + site.x) * s.channels +
                                 site.channel;
          dy = load<kPack>(static_cast<const T*>(a.dy) + at, true);
          places = load<kPack>(static_cast<const PoolPlace*>(a.places) + at, true);
        }
        repeat<4>([&](unsigned i) {
          const unsigned y = 2 * site.y + i / 2, x = 2 * site.x + i % 2;
          if (y >= s.height || x >= s.width) return;
          Pack<T, kPack> dx;
          for (unsigned w = 0; w < kPack; ++w)
            dx.values[w] = places.values[w] == i ? dy.values[w] : narrow<T>(0.0f);
          store(dx,
                static_cast<T*>(a.dx) + row * inputs + (std::size_t(y) * s.width + x) * s.channels +
                    site.channel,
                true);
        });
      });
}

}  // namespace lockstep::engine::cuda
