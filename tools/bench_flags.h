// SPDX-License-Identifier: MIT
// The flags of `lockstep bench`, with their defaults, and what they ask for.
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
    std::optional<std::string> min, max;  // else 4 KiB and 64 MiB
    std::optional<double> factor;         // else 2
  } sizes;

  std::optional<int> warmup;      // else 2
  std::optional<std::string> op;  // else sum
  std::string dtype = "float32", algorithm = "auto";
  std::string collective = "all_reduce", check = "all", compare;
  int iterations = 0, ranks = 0, deadline = 60;
  bool assumed = false, regret = false, overlap = false, reproducible = false;

  struct Scaling {
    bool on = false;
    // Else those of ScalingFlags.
    std::optional<std::string> gradients;
    std::optional<double> compute_ms;
    std::optional<int> batch;
    std::string links;
  } scaling;

  struct Devices {
    std::optional<std::string> copy;  // of ranks on devices: else 256 MiB
    std::string all;                  // "cuda": all GPUs
    std::vector<std::string> each;    // instead: of each rank
  } devices;

  struct Output {
    bool json = false, csv = false;
    std::string plot;
  } output;

  NetworkFlags network;
  Verbosity verbosity;

  // What is timed instead of one collective after the other: "regret", "overlap", "reproducible";
  // empty: nothing else.
  std::string other() const {
    return regret ? "regret" : overlap ? "overlap" : reproducible ? "reproducible" : "";
  }
  std::string operation() const { return op.value_or("sum"); }
  bool on_devices() const { return !devices.all.empty() || !devices.each.empty(); }
  std::string title(int count) const;  // of a picture, of so many ranks
  bench::Form form() const;
  bench::Setting setting() const;
  bench::ScalingFlags scale() const;
  std::vector<std::size_t> counts() const;  // elements of each size, ascending
  // The least and the largest size, as they were given. One alone that is beyond the other's
  // default is both.
  std::string fewest() const, most() const;
  // Ranks of a job of one process. What a launcher started is one rank, else it is two.
  int threads() const;
  std::size_t gradients_bytes() const;  // 0: ResNet-50's
  // Throws Error(kInvalid) for what no job of so many processes could do, before anything is
  // opened, and for flags that would have nothing to do.
  void require_possible(int processes) const;
};

// Adds the flags to the parser, with what each may be; `flags` outlives the parser.
void declare(CLI::App& app, BenchFlags& flags);

}  // namespace lockstep::tools
