// SPDX-License-Identifier: MIT
// What one core can do at most, measured: multiply-and-adds from registers alone, and copying
// memory far larger than the caches. For benchmarks, which say how much of it a kernel reaches.
// Takes about a tenth of a second; any thread.
#pragma once

namespace lockstep::engine::cpu {

struct Peak {
  double flops = 0;  // float32 operations a second; a multiply-and-add is two
  double bytes = 0;  // read and written a second, by a copy
};
Peak measure_peak();

}  // namespace lockstep::engine::cpu
