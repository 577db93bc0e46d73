// SPDX-License-Identifier: MIT
// A histogram of durations, with bins that grow by 1/64 of an octave from a microsecond to an hour.
// It takes a fixed 8 KiB, so a run of any length can keep one. Results are within 0.6 % of the
// values; values below a microsecond read as 0, and values above the last bin as that bin.
// Adding costs a logarithm and allocates nothing. Used by one thread at a time.
#pragma once
#include <array>
#include <cstdint>

namespace lockstep::engine {

class Histogram {
 public:
  void add(double seconds);
  std::uint64_t count() const { return count_; }
  double most() const { return most_; }  // exact
  // Returns the least time that at least the fraction `part` (0 to 1) of all do not exceed; 0 if
  // there is none.
  double quantile(double part) const;
  double median() const { return quantile(0.5); }

 private:
  static constexpr int kPerOctave = 64, kOctaves = 32;
  std::array<std::uint32_t, std::size_t(kPerOctave) * kOctaves> bins_{};  // the first: under 1 us
  std::uint64_t count_ = 0;
  double most_ = 0;
};

}  // namespace lockstep::engine
