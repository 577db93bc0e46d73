// SPDX-License-Identifier: MIT
// The flags of `lockstep bench`, with their defaults, and the settings that they describe.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/row.h"
#include "tools/bench/scaling_runs.h"
#include "tools/bench/turns.h"
#include "tools/network_flags.h"
#include "tools/verbosity.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct BenchFlags {
  struct Sizes {
    std::optional<std::string> min, max;  // default: 4 KiB and 64 MiB
    std::optional<double> factor;         // default: 2
  } sizes;

  std::optional<int> warmup;      // default: 2
  std::optional<std::string> op;  // default: sum
  std::string dtype = "float32", algorithm = "auto";
  std::string collective = "all_reduce", check = "all", compare;
  int iterations = 0, ranks = 0, deadline = 60;
  bool assumed = false, regret = false, overlap = false, reproducible = false;

  struct Scaling {
    bool on = false;
    // The defaults are those of ScalingFlags.
    std::optional<std::string> gradients;
    std::optional<double> compute_ms;
    std::optional<int> batch;
    std::string links;
  } scaling;

  struct Devices {
    std::optional<std::string> copy;  // with devices; default: 256 MiB
    std::string all;                  // "cuda": all GPUs
    std::vector<std::string> each;    // one per rank, instead of `all`
  } devices;

  struct Output {
    bool json = false, csv = false;
    std::string plot;
  } output;

  NetworkFlags network;
  Verbosity verbosity;

  // Returns the flag of the special measurement: "regret", "overlap", "reproducible", or empty.
  std::string other() const {
    return regret ? "regret" : overlap ? "overlap" : reproducible ? "reproducible" : "";
  }
  std::string operation() const { return op.value_or("sum"); }
  bool on_devices() const { return !devices.all.empty() || !devices.each.empty(); }
  // Returns the title of a plot of `count` ranks, which are threads, processes or devices.
  std::string title(int count, const char* kind) const;
  bench::Form form() const;
  bench::Setting setting() const;
  bench::ScalingFlags scale() const;
  std::vector<std::size_t> counts() const;  // elements of each size, ascending
  // Returns the least, or the largest, size as given. If only one is given and it lies beyond the
  // other's default, it is both.
  std::string fewest() const, most() const;
  // Returns the ranks of a job of one process: --ranks, or 1 under a launcher, else 2.
  int threads() const;
  std::size_t gradients_bytes() const;  // 0: ResNet-50's
  // Throws Error(kInvalid) for settings that a job of `processes` cannot run, before anything is
  // opened, and for flags without effect.
  void require_possible(int processes) const;
};

// Adds the flags to the parser, with their allowed values; `flags` outlives the parser.
void declare(CLI::App& app, BenchFlags& flags);

}  // namespace lockstep::tools
