// SPDX-License-Identifier: MIT
// The flags of `lockstep train`, with their defaults.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strategies/grpc/tls_files.h"
#include "strategies/parameter_server/worker/update_options.h"
#include "tools/data_choice.h"
#include "tools/network_flags.h"
#include "tools/verbosity.h"

namespace CLI {
class App;
}  // namespace CLI

namespace lockstep::tools {

// The groups are those of `--help`.
struct TrainFlags {
  std::string model = "mnist_cnn", batch_norm = "local", kernels = "auto";
  bool recompute = false;

  DataChoice data{.global_batch = 64};

  struct Training {
    std::string task;                    // "evaluator", or empty
    std::optional<std::int64_t> epochs;  // without steps; default: 6
    std::int64_t steps = 0;
    int accumulate = 1;
    double label_smoothing = 0;
    std::int64_t evaluate_every = 1;
    std::string dtype;
    std::optional<std::string> loss_scale;
    // The log has one line for these steps. Signals are noticed at their end. An epoch's end and a
    // checkpoint end them early.
    std::int64_t steps_per_execution = 1;
  } training;

  struct Optimizer {
    std::string name = "sgd", schedule = "cosine";
    std::optional<double> rate;      // default: the optimizer's own
    std::optional<double> momentum;  // for sgd and lars; default: 0.9
    std::optional<double> trust;     // for lars; default: its own
    double weight_decay = 0, clip = 0;
    bool nesterov = false, decay_all = false;
  } optimizer;

  std::string strategy;         // default: by the number of processes
  std::optional<int> replicas;  // default: one, or one per GPU (cuda)
  std::string update = "auto";
  std::optional<double> deadline_seconds;  // default: the strategy's own
  std::string memory_limit = "0";          // a size

  struct Servers {  // for parameter_server
    int number = 1;
    // Except `bfloat16` (see `wire`), `touched_rows` (see `tables`) and `prefetch`.
    strategies::UpdateOptions updates;
    std::string place = "round_robin", partition = "none", tables = "rows", prefetch = "off";
    strategies::grpc::TlsFiles tls;
    bool insecure = false;
    int restarts = 3;
  } servers;

  struct Communication {
    std::string algorithm = "auto", wire, gpu_exchange = "auto";
    bool assumed = false;
    std::string bucket = "0";  // a size
    NetworkFlags network;
  } communication;

  struct Devices {
    std::string all = "auto";
    std::vector<std::string> each;  // one per replica; replaces `all`, `replicas`
    int threads = 0;
    std::string bind = "auto", tf32 = "on", graphs = "auto";
    double memory_fraction = 0.95;  // of each GPU
    std::string gpu_memory = "0";   // a size
    int steps_ahead = 1;
  } devices;

  struct Files {
    std::string checkpoints, every = "0";  // steps or a time
    int keep = 3;
    std::string log, summary, profile;
    std::optional<std::int64_t> profile_steps;  // default: 20
  } files;

  bool json = false, placement = false;
  Verbosity verbosity;
  std::string config;

  std::size_t bucket_bytes() const;        // 0: automatic
  std::size_t memory_limit_bytes() const;  // 0: the available memory
  std::size_t gpu_memory_bytes() const;    // 0: as the fraction allows
};

// Adds the flags to the parser, with their allowed values; `flags` outlives the parser.
void declare(CLI::App& app, TrainFlags& flags);

}  // namespace lockstep::tools
