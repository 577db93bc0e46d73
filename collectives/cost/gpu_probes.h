// SPDX-License-Identifier: MIT
// Measures the GPUs of a process: a kernel, an event between two GPUs, and copies within each GPU's
// memory, over each link in each direction, and over all links at once. It only uses Ops, so it
// runs on everything that has some. gpu_costs.h turns the numbers into costs.
//
// Call it from one thread while nothing else uses the GPUs. It allocates memory of each GPU for a
// while. It takes some milliseconds per pair, since fast links get more bytes than slow ones.
#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "engine/ops/ops.h"

namespace lockstep::collectives {

// Holds the measurements of GPUs in some order. All are finite, and all but `signal` are positive.
struct GpuPaces {
  std::vector<double> memory;  // bytes/s, read and written, in own memory
  // Bytes/s, [a * GPUs + b]: of kernels of `b` that read `a`'s memory, or of kernels of `a` that
  // write into `b`'s, whichever is slower. 0 if a is b.
  std::vector<double> links;
  // Bytes/s in and out of each GPU while all read from all others; 0: there is one GPU.
  double port = 0;
  double kernel = 0;  // s per kernel in a row
  // Seconds from the end of a kernel to the start of another rank's kernel that waits for it.
  double signal = 0;
};

struct GpuProbes {
  // Bytes of a copy within a GPU, more than caches hold, and of one between GPUs, which crosses the
  // link in any case. Multiples of 4.
  std::size_t bytes = std::size_t(64) << 20, between = std::size_t(8) << 20;
  double seconds = 200e-6;  // time of copies in a row
  int most = 16;
  int kernels = 64;     // kernels in a row
  int repetitions = 5;  // per measurement; the median counts
};

// Describes a rank: its Ops, and the index of its GPU. Each GPU has at least one rank.
struct GpuRank {
  engine::Ops* ops = nullptr;
  std::size_t gpu = 0;
  std::string name = {};  // name of the GPU for errors: "cuda:1"
};

// Measures GPUs that can access each other's memory. Throws Error(kDevice) that names both GPUs if
// a copy over a link differs from its source, and what Ops throw.
GpuPaces measure_gpus(std::span<const GpuRank> ranks, const GpuProbes& probes = {});

}  // namespace lockstep::collectives
