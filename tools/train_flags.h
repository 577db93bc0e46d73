// SPDX-License-Identifier: MIT
// The flags of `lockstep train`, with their defaults.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/worker/update_options.h"
#include "tools/network_flags.h"
#include "tools/verbosity.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

struct TrainFlags {
  std::string model = "mnist_cnn", data, test;
  std::string strategy;         // else by the number of processes
  std::optional<int> replicas;  // else one, or one a GPU of --device cuda
  std::size_t global_batch = 64;
  std::optional<std::int64_t> epochs;  // where no steps are given: else 6
  std::int64_t steps = 0;
  int accumulate = 1;
  std::string optimizer = "sgd", schedule = "cosine";
  std::optional<double> rate;      // else the optimizer's own
  std::optional<double> momentum;  // of sgd and lars: else 0.9
  std::optional<double> trust;     // of lars: else its own
  double weight_decay = 0, clip = 0, label_smoothing = 0;
  bool nesterov = false, decay_all = false;
  std::uint64_t seed = 1;
  std::optional<std::uint64_t> examples;  // of generated digits: else 8000
  int threads = 0;
  std::vector<std::string> devices;  // one for each replica, instead of `device` and `replicas`
  double memory_fraction = 0.95;     // of GPUs
  std::string tf32 = "on";
  int steps_ahead = 1;
  std::int64_t steps_per_execution = 1;
  std::string device = "auto", dtype, algorithm = "auto", update = "auto", kernels = "auto",
              bind = "auto", graphs = "auto";
  std::optional<std::string> loss_scale;
  NetworkFlags network;
  std::string bucket = "0", memory_limit = "0", gpu_memory = "0";  // sizes
  std::optional<double> deadline_seconds;                          // else the strategy's own
  std::string config, checkpoints, log, summary, profile;
  std::optional<std::int64_t> profile_steps;  // else 20
  std::string every = "0";                    // steps or a time
  std::int64_t evaluate_every = 1;
  int keep = 3;
  int servers = 1;  // of parameter_server, and what follows
  strategies::UpdateOptions
      updates;  // but for `bfloat16`: `wire`; `touched_rows`: `tables`; `prefetch`
  std::string place = "round_robin", partition = "none", wire, tables = "rows", prefetch = "off";
  std::string gpu_exchange = "auto";
  strategies::grpc::TlsFiles tls;
  bool insecure = false;
  int restarts = 3;
  bool recompute = false;
  std::string batch_norm = "local", augment = "none";
  bool assumed = false, json = false, placement = false;
  Verbosity verbosity;

  std::size_t bucket_bytes() const;        // 0: chosen
  std::size_t memory_limit_bytes() const;  // 0: what there is
  std::size_t gpu_memory_bytes() const;    // 0: what the fraction allows
};

// Adds the flags to the parser, with what each may be; `flags` outlives the parser.
void declare(CLI::App& app, TrainFlags& flags);

}  // namespace lockstep::tools
