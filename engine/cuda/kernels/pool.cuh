// SPDX-License-Identifier: MIT
// The kernels of pool.h. In the forward pass a thread visits the window of an output, row by row.
// In the backward pass it visits the windows that cover an input, row by row, and adds their
// gradients. Each sum belongs to one thread and has a fixed order.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <lanes.cuh>

#include "engine/cuda/kernels/pack.cuh"
#include "engine/cuda/kernels/pool.h"

namespace lockstep::engine::cuda {

// The indices [begin, end) of an axis.
struct Stretch {
  unsigned begin, end;
  __device__ unsigned size() const { return end - begin; }
};

// Returns the pixels of a window that lie inside the image.
__device__ inline Stretch pixels_of(unsigned window, unsigned extent, unsigned kernel,
                                    const PoolSizes& s) {
  const unsigned begin = window * s.stride, end = begin + kernel;  // in the padded image
  return {begin > s.padding ? begin - s.padding : 0,
          end - s.padding < extent ? end - s.padding : extent};
}

// Returns the windows that cover a pixel.
__device__ inline Stretch windows_of(unsigned pixel, unsigned windows, unsigned kernel,
                                     const PoolSizes& s) {
  const unsigned at = pixel + s.padding, last = at / s.stride + 1;
  return {at < kernel ? 0 : (at - kernel) / s.stride + 1, last < windows ? last : windows};
}

// Returns the index of a pixel in its window.
__device__ inline std::uint32_t place_in(unsigned oy, unsigned ox, unsigned iy, unsigned ix,
                                         const PoolSizes& s) {
  return (iy + s.padding - oy * s.stride) * s.kernel_width + ix + s.padding - ox * s.stride;
}

// Holds a thread's pixel and first channel.
struct Site {
  unsigned y, x, channel;
};

// Returns n / d. It is fast if d is a power of two, as most channel groups are.
__device__ inline unsigned quotient(unsigned n, unsigned d) {
  return (d & (d - 1)) == 0 ? n >> lowest_bit(d) : n / d;
}

// Calls visit(row, site) for each group of kWidth channels that the thread owns in the images in
// use.
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
        // NaN wins over all numbers, so that it propagates.
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

// Calls visit(width of a group, a place) with the types for these sizes.
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

// Returns the gradient that the windows of an image contribute to one input.
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

template <class T>
__device__ void run(const PoolBackward& a) {
  pool_ways(a.sizes, [&](auto width, auto place) { gather_all<T, width(), decltype(place)>(a); });
}

// The remaining code is for sizes with pools_by_two. A thread starts all its loads before it uses
// one. Values stay in words of lanes, since nvcc unpacks 16-bit values at their load and then waits
// for it. A pixel beyond an edge is replaced by the nearest one, since loads in branches wait as
// well.
template <class T>
inline constexpr unsigned kWords = kPack * sizeof(T) / sizeof(std::uint32_t);
template <class T>
using Words = Pack<std::uint32_t, kWords<T>>;

template <class T>
__device__ inline Words<T> load_words(const T* from) {
  return load<kWords<T>>(reinterpret_cast<const std::uint32_t*>(from), true);
}
template <class T>
__device__ inline void store_words(const Words<T>& words, T* to) {
  store(words, reinterpret_cast<std::uint32_t*>(to), true);
}

// Returns the places of the lanes of word `w`.
template <class T>
__device__ inline std::uint32_t spread(const Words<PoolPlace>& places, unsigned w) {
  if constexpr (sizeof(T) == 4)
    return chosen_bytes(places.values[w / 4], 0, 0x4440 + w % 4);
  else
    return chosen_bytes(places.values[w / 2], 0, w % 2 == 0 ? 0x4140 : 0x4342);
}
// Returns the lowest byte of each lane.
template <class T>
__device__ inline Words<PoolPlace> gathered(const Words<T>& lanes) {
  Words<PoolPlace> places;
  repeat<2>([&](unsigned i) {
    const std::uint32_t* const from = lanes.values + i * kWords<T> / 2;
    if constexpr (sizeof(T) == 4)
      places.values[i] = chosen_bytes(chosen_bytes(from[0], from[1], 0x0040),
                                      chosen_bytes(from[2], from[3], 0x0040), 0x5410);
    else
      places.values[i] = chosen_bytes(from[0], from[1], 0x6420);
  });
  return places;
}

// Returns a word with the same number in all lanes.
template <class T>
__device__ inline std::uint32_t lanes_of(std::uint32_t number) {
  return sizeof(T) == 4 ? number : number * 0x10001;
}
// Returns the bits of `a` where the mask has ones, and those of `b` elsewhere.
__device__ inline std::uint32_t selected(std::uint32_t mask, std::uint32_t a, std::uint32_t b) {
  return (mask & a) | (~mask & b);
}

// Returns the number of [begin, begin + size) that is nearest to `number`.
__device__ inline unsigned nearest(unsigned number, unsigned begin, unsigned size) {
  return number < begin ? begin : number < begin + size ? number : begin + size - 1;
}

// Finds the largest number of each lane of word `w`, and its first place. `numbers` are the places
// of the pixels. A pixel that replaces one beyond an edge keeps its own place.
template <class T, unsigned kPixels>
__device__ inline void find_largest(const Words<T> (&window)[kPixels],
                                    const std::uint32_t (&numbers)[kPixels], unsigned w, bool relu,
                                    std::uint32_t& largest, std::uint32_t& place) {
  largest = window[0].values[w];
  repeat<kPixels - 1>(
      [&](unsigned i) { largest = larger_lanes<T>(largest, window[i + 1].values[w]); });
  place = numbers[0];
  repeat<kPixels>([&](unsigned i) {
    const unsigned n = kPixels - 1 - i;
    place = selected(equal_lanes<T>(window[n].values[w], largest), numbers[n], place);
  });
  const std::uint32_t is_number = equal_lanes<T>(largest, largest);
  if (is_number != ~0u) {  // the first NaN wins
    repeat<kPixels>([&](unsigned i) {
      const std::uint32_t value = window[kPixels - 1 - i].values[w];
      place = selected(equal_lanes<T>(value, value), place, numbers[kPixels - 1 - i]);
    });
  }
  if (relu) place |= ~is_number | equal_lanes<T>(larger_lanes<T>(largest, 0), 0);
}

template <class T, unsigned kKernel>
__device__ void pool_by_two(const PoolForward& a) {
  const PoolSizes& s = a.sizes;
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  each_site<kPack>(
      a.state, s, s.output_height, s.output_width, [&](std::size_t row, const Site& site) {
        const T* const image = static_cast<const T*>(a.x) + row * inputs + site.channel;
        Words<T> window[kKernel * kKernel];
        std::uint32_t numbers[kKernel * kKernel];
        repeat<kKernel * kKernel>([&](unsigned i) {
          const unsigned y = nearest(2 * site.y + i / kKernel, s.padding, s.height),
                         x = nearest(2 * site.x + i % kKernel, s.padding, s.width);
          window[i] = load_words(image + ((y - s.padding) * s.width + x - s.padding) * s.channels);
          numbers[i] = lanes_of<T>((y - 2 * site.y) * kKernel + x - 2 * site.x);
        });
        Words<T> largest, places;
        repeat<kWords<T>>([&](unsigned w) {
          find_largest<T>(window, numbers, w, s.relu, largest.values[w], places.values[w]);
        });
        const std::size_t at =
            row * outputs + (site.y * s.output_width + site.x) * s.channels + site.channel;
        store_words(largest, static_cast<T*>(a.y) + at);
        store_words(gathered<T>(places), static_cast<PoolPlace*>(a.places) + at);
      });
}

template <class T>
__device__ void run(const QuadPoolForward& a) {
  pool_by_two<T, 2>(a);
}
template <class T>
__device__ void run(const NinePoolForward& a) {
  pool_by_two<T, 3>(a);
}

// Computes the gradients of two by two inputs from their windows: kWindows by kWindows, of which
// the last begins at the first input. In the padded image, inputs and windows begin at even
// coordinates.
template <class T, unsigned kWindows>
class FourInputs {
 public:
  static constexpr unsigned kKernel = kWindows + 1;
  __device__ FourInputs(const PoolSizes& s, const T* dy, const PoolPlace* places,
                        const Site& site) {
    constexpr unsigned kBefore = kWindows - 1;
    bool there[kWindows * kWindows];
    repeat<kWindows * kWindows>([&](unsigned n) {
      const unsigned oy = site.y + n / kWindows, ox = site.x + n % kWindows;  // larger by kBefore
      const unsigned y = nearest(oy, kBefore, s.output_height),
                     x = nearest(ox, kBefore, s.output_width);
      there[n] = y == oy && x == ox;
      const unsigned at = ((y - kBefore) * s.output_width + x - kBefore) * s.channels;
      dy_[n] = load_words(dy + at);
      winners_[n] = load_words(places + at);
    });
    repeat<kWindows * kWindows>([&](unsigned n) {
      for (std::uint32_t& winners : winners_[n].values) winners = there[n] ? winners : ~0u;
    });
  }

  // Returns the sum over the windows for word `w` of an input. The value of a single window needs
  // no rounding.
  __device__ std::uint32_t sum(unsigned input, unsigned w) const {
    constexpr unsigned kLanes = 4 / sizeof(T);
    Pack<float, kLanes> sums;
    for (float& sum : sums.values) sum = -0.0f;  // plus any number is that number
    std::uint32_t won = 0;
    unsigned windows = 0;
    repeat<kWindows * kWindows>([&](unsigned n) {
      // The input's place in the window.
      const unsigned py = input / 2 + 2 * (kWindows - 1 - n / kWindows),
                     px = input % 2 + 2 * (kWindows - 1 - n % kWindows);
      if (py >= kKernel || px >= kKernel) return;
      const std::uint32_t place = lanes_of<T>(py * kKernel + px);
      won = dy_[n].values[w] & same_lanes<T>(spread<T>(winners_[n], w), place);
      const auto lanes = std::bit_cast<Pack<T, kLanes>>(won);
      for (unsigned k = 0; k < kLanes; ++k) sums.values[k] += wide(lanes.values[k]);
      ++windows;
    });
    return windows == 1 ? won : std::bit_cast<std::uint32_t>(narrowed<T>(sums));
  }

 private:
  Words<T> dy_[kWindows * kWindows];
  Words<PoolPlace> winners_[kWindows * kWindows];
};

// Computes dx. Inputs at the lower and right edge that are in no window have a site, too.
template <class T, unsigned kWindows>
__device__ void gather_by_two(const PoolBackward& a) {
  const PoolSizes& s = a.sizes;
  const std::size_t inputs = std::size_t(s.height) * s.width * s.channels;
  const std::size_t outputs = std::size_t(s.output_height) * s.output_width * s.channels;
  const unsigned height = input_pairs(s.height, s.padding), width = input_pairs(s.width, s.padding);
  each_site<kPack>(a.state, s, height, width, [&](std::size_t row, const Site& site) {
    const std::size_t at = row * outputs + site.channel;
    const FourInputs<T, kWindows> four(s, static_cast<const T*>(a.dy) + at,
                                       static_cast<const PoolPlace*>(a.places) + at, site);
    T* const image = static_cast<T*>(a.dx) + row * inputs + site.channel;
    // Starts with the last: stores keep the compiler from moving the only use of a load, and the
    // load with it, behind a branch.
    repeat<4>([&](unsigned i) {
      const unsigned input = 3 - i;
      const unsigned y = 2 * site.y + input / 2 - s.padding, x = 2 * site.x + input % 2 - s.padding;
      if (y >= s.height || x >= s.width) return;  // negative numbers wrap
      Words<T> dx;
      repeat<kWords<T>>([&](unsigned w) { dx.values[w] = four.sum(input, w); });
      store_words(dx, image + (y * s.width + x) * s.channels);
    });
  });
}

template <class T>
__device__ void run(const QuadPoolBackward& a) {
  gather_by_two<T, 1>(a);
}
template <class T>
__device__ void run(const NinePoolBackward& a) {
  gather_by_two<T, 2>(a);
}

}  // namespace lockstep::engine::cuda
