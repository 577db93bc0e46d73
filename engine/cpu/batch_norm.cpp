// SPDX-License-Identifier: MIT
#include "engine/cpu/batch_norm.h"

#include <algorithm>

#include "engine/cpu/batch_norm_kernels.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

constexpr std::size_t kGroup = 16;

// Computes any number of channels by loops over the elements of one row.
template <class T>
struct Plain {
  using Part = BatchNormPart<T>;
  static std::size_t elements(const Part& a) { return a.positions * a.channels; }
  static float passed(const Part& a, std::size_t i) {
    const bool cut = a.passed != nullptr && (a.passed[i / 8] >> (i % 8) & 1) == 0;
    return cut ? 0.0f : float(a.dy[i]);
  }
  static float centred(const Part& a, std::size_t i) {
    return float(a.x[i]) - a.about[i % a.channels];
  }
  static void sums(const Part& a) {
    for (std::size_t i = 0; i < elements(a); ++i) {
      const double value = double(centred(a, i));
      a.sums[i % a.channels] += value;
      a.sums[a.channels + i % a.channels] += value * value;
    }
  }
  static void forward(const Part& a) {
    if (a.mask != nullptr) std::fill_n(a.mask, (elements(a) + 7) / 8, std::uint8_t(0));
    for (std::size_t i = 0; i < elements(a); ++i) {
      const std::size_t c = i % a.channels;
      float y = centred(a, i) * a.factor[c] + a.shift[c];
      if (a.other_factor != nullptr) {
        y += (float(a.other[i]) - a.other_about[c]) * a.other_factor[c] + a.other_shift[c];
      } else if (a.other != nullptr) {
        y += float(a.other[i]);
      }
      if (a.mask != nullptr && y > 0) a.mask[i / 8] |= std::uint8_t(1u << (i % 8));
      a.y[i] = T(a.mask != nullptr && y < 0 ? 0.0f : y);
    }
  }
  static void gradient_sums(const Part& a) {
    for (std::size_t i = 0; i < elements(a); ++i) {
      const double g = double(passed(a, i));
      a.sums[i % a.channels] += g;
      a.sums[a.channels + i % a.channels] += g * double(centred(a, i));
    }
  }
  static void backward(const Part& a) {
    for (std::size_t i = 0; i < elements(a); ++i) {
      const std::size_t c = i % a.channels;
      const float g = passed(a, i);
      if (a.dx != nullptr) {
        a.dx[i] = T((g - a.level[c] - centred(a, i) * a.slope[c]) * a.factor[c]);
      }
      if (a.dother != nullptr) a.dother[i] = T(g);
    }
  }
};

template <class T>
T* from_row(T* data, std::size_t at) {
  return data == nullptr ? nullptr : data + at;
}

// Returns a part of the rows of `whole`, whose pointers refer to the first row.
template <class T>
BatchNormPart<T> rows_of(const BatchNormSpec& s, BatchNormPart<T> whole, std::size_t first,
                         std::size_t count) {
  const std::size_t at = first * s.columns(), bits = first * s.mask_of_row();
  whole.positions = count * s.positions;
  for (const T** data : {&whole.x, &whole.dy, &whole.other}) *data = from_row(*data, at);
  for (T** data : {&whole.y, &whole.dx, &whole.dother}) *data = from_row(*data, at);
  whole.passed = from_row(whole.passed, bits);
  whole.mask = from_row(whole.mask, bits);
  return whole;
}

// Runs a kernel on rows [first, first + count), all at once if their mask bits are contiguous.
template <class T>
void run(const BatchNormSpec& s, const BatchNormPart<T>& whole, std::size_t first,
         std::size_t count, void (*fast)(const BatchNormPart<T>&),
         void (*plain)(const BatchNormPart<T>&)) {
  if (s.channels % kGroup == 0) return fast(rows_of(s, whole, first, count));
  for (std::size_t row = first; row < first + count; ++row) plain(rows_of(s, whole, row, 1));
}

// Lays out the library's scratch: sums per thread, then float32 numbers per channel.
struct Scratch {
  double* sums;
  float* numbers;
  Scratch(Library& library, const BatchNormSpec& s) {
    const std::size_t of_threads = std::size_t(library.threads()) * s.gradient_sums();
    std::byte* const memory = library.scratch(of_threads * sizeof(double) + bytes(s));
    sums = reinterpret_cast<double*>(memory);
    numbers = reinterpret_cast<float*>(memory + of_threads * sizeof(double));
    std::fill_n(sums, of_threads, 0.0);
  }
  static std::size_t bytes(const BatchNormSpec& s) { return 6 * s.channels * sizeof(float); }
};

// Adds the pairs of sums of all threads, each over its rows, into `to`.
template <class T>
void sum_rows(Library& library, const BatchNormSpec& s, std::size_t rows,
              const BatchNormPart<T>& whole, const Scratch& scratch, double* to,
              void (*fast)(const BatchNormPart<T>&), void (*plain)(const BatchNormPart<T>&)) {
  const int threads = library.threads();
  share_rows(threads, rows, [&](int thread, std::size_t first, std::size_t count) {
    BatchNormPart<T> part = whole;
    part.sums = scratch.sums + std::size_t(thread) * s.gradient_sums();
    run(s, part, first, count, fast, plain);
  });
  std::copy_n(scratch.sums, s.gradient_sums(), to);
  for (int thread = 1; thread < threads; ++thread) {
    const double* from = scratch.sums + std::size_t(thread) * s.gradient_sums();
    for (std::size_t i = 0; i < s.gradient_sums(); ++i) to[i] += from[i];
  }
}

// Stores the means as float32 in `numbers`.
void set_means(const BatchNormSpec& s, const double* moments, float* numbers) {
  for (std::size_t c = 0; c < s.channels; ++c) numbers[c] = float(moments[c]);
}

// Stores scale times deviation per channel.
template <class T>
void set_factors(const BatchNormSpec& s, const double* moments, const Tensor& scale, float* to) {
  for (std::size_t c = 0; c < s.channels; ++c) {
    to[c] = float(double(float(scale.as<T>()[c])) * moments[s.channels + c]);
  }
}

}  // namespace

// Values are summed as differences from the first one of their channel, which is close enough to
// the mean that the squares lose no precision. The results are then converted to sums of the
// values.
template <class T>
void batch_norm_sums(Library& library, const BatchNormSpec& s, std::size_t rows, const T* x,
                     double* sums) {
  const Scratch scratch(library, s);
  BatchNormPart<T> whole;
  whole.channels = s.channels;
  whole.x = x;
  whole.about = scratch.numbers;
  for (std::size_t c = 0; c < s.channels; ++c) {
    scratch.numbers[c] = rows == 0 ? 0.0f : float(x[c]);
  }
  sum_rows<T>(library, s, rows, whole, scratch, sums, batch_norm_sums, Plain<T>::sums);
  const double n = double(rows * s.positions);
  for (std::size_t c = 0; c < s.channels; ++c) {
    const double about = double(scratch.numbers[c]);
    double &sum = sums[c], &squares = sums[s.channels + c];
    squares += about * (2 * sum + n * about);
    sum += n * about;
  }
  sums[2 * s.channels] = n;
}

template <class T>
void batch_norm_forward(Library& library, const BatchNormSpec& s, std::size_t rows,
                        const BatchNormForward& a) {
  const Scratch scratch(library, s);
  // Stores means, factors and shifts.
  const auto set = [&](const double* moments, const Tensor& scale, const Tensor& shift, float* to) {
    set_means(s, moments, to);
    set_factors<T>(s, moments, scale, to + s.channels);
    for (std::size_t c = 0; c < s.channels; ++c) {
      to[2 * s.channels + c] = float(shift.as<T>()[c]);
    }
  };
  float *const numbers = scratch.numbers, *const of_other = numbers + 3 * s.channels;
  set(a.moments, a.scale, a.shift, numbers);
  BatchNormPart<T> whole;
  if (a.other_moments != nullptr) {
    set(a.other_moments, a.other_scale, a.other_shift, of_other);
    whole.other_about = of_other;
    whole.other_factor = of_other + s.channels;
    whole.other_shift = of_other + 2 * s.channels;
  }
  whole.channels = s.channels;
  whole.x = a.x.as<T>();
  whole.other = a.other.as<T>();
  whole.y = a.y.as<T>();
  whole.mask = s.activation == Activation::kRelu ? a.mask : nullptr;
  whole.about = numbers;
  whole.factor = numbers + s.channels;
  whole.shift = numbers + 2 * s.channels;
  share_rows(library.threads(), rows, [&](int, std::size_t first, std::size_t count) {
    run<T>(s, whole, first, count, batch_norm_forward, Plain<T>::forward);
  });
}

// Returns the members that both backward kernels read.
template <class T>
BatchNormPart<T> part_of(const BatchNormSpec& s, const BatchNormBackward& a, float* numbers) {
  set_means(s, a.moments, numbers);
  BatchNormPart<T> whole;
  whole.channels = s.channels;
  whole.x = a.x.as<T>();
  whole.dy = a.dy.as<T>();
  whole.passed = s.activation == Activation::kRelu ? a.mask : nullptr;
  whole.about = numbers;
  return whole;
}

template <class T>
void batch_norm_gradient_sums(Library& library, const BatchNormSpec& s, std::size_t rows,
                              const BatchNormBackward& a, Tensor dscale, Tensor dshift,
                              bool accumulate, double* sums) {
  const Scratch scratch(library, s);
  const BatchNormPart<T> whole = part_of<T>(s, a, scratch.numbers);
  sum_rows<T>(library, s, rows, whole, scratch, sums, batch_norm_gradient_sums,
              Plain<T>::gradient_sums);
  for (std::size_t c = 0; c < s.channels; ++c) sums[s.channels + c] *= a.moments[s.channels + c];
  const auto put = [&](const Tensor& to, const double* values) {
    if (!to) return;
    T* const numbers = to.as<T>();
    for (std::size_t c = 0; c < s.channels; ++c) {
      numbers[c] = T(float(values[c]) + (accumulate ? float(numbers[c]) : 0.0f));
    }
  };
  put(dshift, sums);
  put(dscale, sums + s.channels);
}

template <class T>
void batch_norm_backward(Library& library, const BatchNormSpec& s, std::size_t rows,
                         const BatchNormBackward& a) {
  const Scratch scratch(library, s);
  float* const numbers = scratch.numbers;
  BatchNormPart<T> whole = part_of<T>(s, a, numbers);
  set_factors<T>(s, a.moments, a.scale, numbers + s.channels);
  for (std::size_t c = 0; c < s.channels; ++c) {
    const bool constant = a.sums == nullptr;
    const double deviation = a.moments[s.channels + c];
    numbers[2 * s.channels + c] = constant ? 0.0f : float(a.sums[c] / *a.count);
    numbers[3 * s.channels + c] =
        constant ? 0.0f : float(a.sums[s.channels + c] / *a.count * deviation);
  }
  whole.dx = a.dx.as<T>();
  whole.dother = a.dother.as<T>();
  whole.factor = numbers + s.channels;
  whole.level = numbers + 2 * s.channels;
  whole.slope = numbers + 3 * s.channels;
  share_rows(library.threads(), rows, [&](int, std::size_t first, std::size_t count) {
    run<T>(s, whole, first, count, batch_norm_backward, Plain<T>::backward);
  });
}

template void batch_norm_sums<float>(Library&, const BatchNormSpec&, std::size_t, const float*,
                                     double*);
template void batch_norm_sums<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                        const BFloat16*, double*);
template void batch_norm_forward<float>(Library&, const BatchNormSpec&, std::size_t,
                                        const BatchNormForward&);
template void batch_norm_forward<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                           const BatchNormForward&);
template void batch_norm_gradient_sums<float>(Library&, const BatchNormSpec&, std::size_t,
                                              const BatchNormBackward&, Tensor, Tensor, bool,
                                              double*);
template void batch_norm_gradient_sums<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                                 const BatchNormBackward&, Tensor, Tensor, bool,
                                                 double*);
template void batch_norm_backward<float>(Library&, const BatchNormSpec&, std::size_t,
                                         const BatchNormBackward&);
template void batch_norm_backward<BFloat16>(Library&, const BatchNormSpec&, std::size_t,
                                            const BatchNormBackward&);

}  // namespace lockstep::engine::cpu
