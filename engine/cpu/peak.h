// SPDX-License-Identifier: MIT
// The measured peak performance of one core: multiply-adds from registers alone, and copying memory
// far larger than the caches. Benchmarks report how much of it a kernel reaches. Takes about a
// tenth of a second; thread-safe.
#pragma once

namespace lockstep::engine::cpu {

struct Peak {
  double flops = 0;  // float32 operations per second; multiply-adds count twice
  double bytes = 0;  // read and written per second by a copy
};
Peak measure_peak();

}  // namespace lockstep::engine::cpu
