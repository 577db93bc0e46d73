// SPDX-License-Identifier: MIT
// How often times of which length came, in bins that grow by a sixteenth of an octave: from a
// microsecond to an hour, in a fixed 2 KiB, so that a run of any length can keep one. What is read
// out is within 2.2 % of what was put in; less than a microsecond reads as none, more than the last
// bin as that. Adding costs a logarithm and allocates nothing. One thread at a time.
#pragma once
#include <array>
#include <cstdint>

namespace lockstep::engine {

class Histogram {
 public:
  void add(double seconds);
  std::uint64_t count() const { return count_; }
  double most() const { return most_; }  // exact
  // The least time that at least this part (0 to 1) of all do not exceed; 0 where there is none.
  double quantile(double part) const;
  double median() const { return quantile(0.5); }

 private:
  static constexpr int kPerOctave = 16, kOctaves = 32;
  std::array<std::uint32_t, std::size_t(kPerOctave) * kOctaves> bins_{};  // the first: none
  std::uint64_t count_ = 0;
  double most_ = 0;
};

}  // namespace lockstep::engine
