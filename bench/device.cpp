// SPDX-License-Identifier: MIT
// Times the updates of replicas on one device: the optimizer alone, and the fused update against a
// separate one. Each is interleaved with a copy, and the table has its share of the copy's rate.
// `lockstep bench --device` times the all-reduce alone.
//
//   bench_device --device cuda:0
//   bench_device --device cpu:0 --parameters 1000000
#include <fmt/core.h>

#include <cstdio>

#include "bench/device_figures.h"
#include "engine/base/error.h"
#include "engine/runtime/devices.h"
#include "tools/bench/program_flags.h"

namespace lockstep::bench {
namespace {

struct Flags {
  std::string device = "cuda:0";
  std::vector<std::string> dtypes = {"bfloat16", "float32"};
  int copy_mib = 256, update_replicas = 4, turns = 7;
  std::size_t parameters = 25'600'000;
  double batch_ms = 20;
  bool json = false;
};

void print_shares(const nlohmann::json& row, const std::string& what) {
  fmt::print("  {:32}{:12.1f} us{:9.1f} GB/s{:8.1f} % of the copy\n", what,
             row["microseconds"].get<double>(), row["gb_s"].get<double>(),
             100 * row["share_of_copy"].get<double>());
}

void print(const nlohmann::json& object, bool json) {
  if (json) {
    fmt::print("{}\n", object.dump());
  } else {
    const auto bench = object["bench"].get<std::string>();
    fmt::print("{} in {} on {}; a copy: {:.1f} GB/s\n", bench, object["dtype"].get<std::string>(),
               object["device"].get<std::string>(), object["copy_gb_s"].get<double>());
    if (bench == "optimizer") {
      print_shares(object, fmt::format("{} parameters, {} bytes each",
                                       object["parameters"].get<std::size_t>(),
                                       object["bytes_per_parameter"].get<double>()));
    } else {
      for (const auto& [name, way] : object["ways"].items())
        fmt::print("  {:32}{:12.1f} us in {} buckets\n", name, way["microseconds"].get<double>(),
                   way["buckets"].get<std::size_t>());
      fmt::print("  fused is {:.2f} times as fast as separate, with {} replicas\n",
                 object["fused_over_separate"].get<double>(), object["replicas"].get<int>());
    }
  }
  // Prints each result at once, so that an interrupted run keeps the earlier ones.
  std::fflush(stdout);
}

int run(const Flags& f) {
  const engine::DeviceId id = engine::parse_device_id(f.device);
  const auto devices = id.kind == "cuda" ? engine::all_devices() : engine::host_devices();
  engine::Device& device = engine::find(devices, id);
  DeviceOptions options;
  options.copied = std::size_t(f.copy_mib) << 20;
  options.parameters = f.parameters;
  options.update_replicas = f.update_replicas;
  options.turns = f.turns;
  options.batch_seconds = f.batch_ms / 1e3;
  for (const auto measure : {optimizer_figures, update_figures}) {
    for (const std::string& dtype : f.dtypes) {
      options.dtype = engine::dtype_of(dtype);
      print(measure(device, options), f.json);
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange, lockstep::tools::bench::ProgramFlags;
  lockstep::bench::Flags f;
  ProgramFlags flags("bench_device", "Updates of replicas on one device, and its copy.");
  flags.option("--device", f.device, "cuda:0, cpu:0");
  flags.option("--dtypes", f.dtypes, "of gradients and weights");
  flags.option("--parameters", f.parameters, "of optimizer and updates");
  flags.option("--update-replicas", f.update_replicas, "of the updates", NumberRange{2, 16});
  flags.option("--copy-mib", f.copy_mib, {}, NumberRange{1, 65536});
  flags.option("--turns", f.turns, {}, NumberRange{1, 1000});
  flags.option("--batch-ms", f.batch_ms, "about, of calls between two waits",
               NumberRange{1e-6, 1e9});
  flags.flag("--json", f.json, "one JSON object a table");
  return flags.run(argc, argv, [&] { return lockstep::bench::run(f); });
}
