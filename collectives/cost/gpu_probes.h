// SPDX-License-Identifier: MIT
// Measures what the GPUs of a process cost each other: a kernel, an event between two of them,
// copies within each one's memory, over each link in each direction, and over all at once. Through
// Ops alone, so on whatever has some. What becomes of the numbers stands in gpu_costs.h.
//
// One thread, while nothing else uses the GPUs. Takes memory of each for a while. Some milliseconds
// a pair, since fast links get more bytes than slow ones.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/ops/ops.h"

namespace lockstep::collectives {

// Of GPUs in some order. All are positive but `signal`, and finite.
struct GpuPaces {
  std::vector<double> memory;  // bytes/s that a kernel reads and writes together in its own memory
  // Bytes/s, [a * GPUs + b]: what kernels of `b` read of `a`'s memory, or those of `a` write into
  // `b`'s, whichever is slower. 0 where a is b.
  std::vector<double> links;
  double port = 0;  // bytes/s in and out of each GPU while all read of all others; 0: there is one
  double kernel = 0;  // s, one behind the other
  double signal = 0;  // s from the end of a kernel to the begin of one that another rank has behind
};

struct GpuProbes {
  // Bytes of a copy, more than caches hold; and of one between GPUs, which crosses the link
  // whatever they hold. Multiples of 4.
  std::size_t bytes = std::size_t(64) << 20, between = std::size_t(8) << 20;
  double seconds = 200e-6;  // about so long are copies done in a row, at most `most` ...
  int most = 16;
  int kernels = 64;     // ... and so many kernels
  int repetitions = 5;  // of each; the median counts
};

// A rank: its kernels, and its GPU's place in the order. At least one of each GPU.
struct GpuRank {
  engine::Ops* ops = nullptr;
  std::size_t gpu = 0;
  std::string name = {};  // of the GPU, for errors: "cuda:1"
};

// The GPUs reach each other's memory. Throws Error(kDevice) where a copy over a link is not what
// was copied, naming both GPUs, and what Ops throw.
GpuPaces measure_gpus(std::span<const GpuRank> ranks, const GpuProbes& probes = {});

}  // namespace lockstep::collectives
