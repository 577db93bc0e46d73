// SPDX-License-Identifier: MIT
#include "tools/bench_devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/size_rules.h"
#include "collectives/nccl/nccl.h"
#include "collectives/topology/topology.h"
#include "engine/base/error.h"
#include "tools/bench/device_ranks.h"
#include "tools/bench/flat_replicas.h"
#include "tools/bench/plot.h"
#include "tools/bench/row.h"
#include "tools/bench/verdict.h"
#include "tools/device_costs.h"
#include "tools/leaving.h"
#include "tools/standard_streams.h"

namespace lockstep::tools {
namespace {

using Devices = std::vector<engine::Device*>;

constexpr int kUsualRanks = 2;
constexpr const char* kNccl = "NCCL";

// Returns a device per rank: the listed devices, all GPUs in rotation, or one device for all ranks.
Devices devices_of_ranks(const BenchFlags& f, strategies::Session& session) {
  Devices devices;
  for (const std::string& name : f.devices.each) devices.push_back(&session.device(name));
  if (!devices.empty()) return devices;
  Devices from = f.devices.all == "cuda" ? session.gpus() : Devices{};
  if (from.empty()) from = {&session.device(f.devices.all)};
  const std::size_t ranks =
      f.ranks > 0 ? std::size_t(f.ranks) : std::max<std::size_t>(kUsualRanks, from.size());
  for (std::size_t rank = 0; rank < ranks; ++rank) devices.push_back(from[rank % from.size()]);
  return devices;
}

void require_devices(const Devices& devices, engine::DType dtype) {
  are_gpus(devices);
  engine::require(devices.size() >= 2 && devices.size() <= bench::kMostReplicas,
                  "{} ranks on {}: give 2 to {}", devices.size(), fmt::join(names_of(devices), ","),
                  bench::kMostReplicas);
  for (const engine::Device* device : devices)
    engine::require(device->supports(dtype), "--dtype {}: {} has no kernels for it",
                    engine::name(dtype), to_string(device->id()));
}

// Returns null if NCCL cannot sum over these devices, and prints the reason.
std::unique_ptr<bench::NcclRanks> nccl_of(const Devices& devices, std::chrono::seconds deadline) {
  std::string why = bench::NcclRanks::refusal(devices);
  if (why.empty() && !collectives::nccl::available()) why = collectives::nccl::finding();
  try {
    if (why.empty())
      return std::make_unique<bench::NcclRanks>(
          devices, strategies::VendorLibrary{collectives::nccl::version, collectives::nccl::open},
          deadline);
  } catch (const engine::Error& error) {
    why = error.what();
  }
  complain(fmt::format("NCCL is not timed: {}", why));
  return nullptr;
}

std::string head(const Devices& devices) {
  return fmt::format("# {} ranks on {}: {}\n", devices.size(), fmt::join(names_of(devices), ","),
                     devices[0]->description());
}

// Returns what stands below the table.
std::string foot(const Devices& devices, const std::vector<bench::Row>& rows) {
  std::string text =
      "# us, min, p99: median, least and 99th percentile of batches of calls, in place\n"
      "# roof %: of the roofline, which reads and writes the memory of all ranks once, at the rate "
      "of a copy\n";
  for (const std::string& lines : {bench::legend(rows), bench::summary(rows)})
    text += lines.empty() ? "" : lines + "\n";
  return text + fmt::format("# a copy within {} moves {:.1f} GB/s\n", to_string(devices[0]->id()),
                            rows.back().measured.copy_gb_s);
}

}  // namespace

bool bench_devices(const BenchFlags& f, const bench::Setting& asked, strategies::Session& session) {
  const Devices devices = devices_of_ranks(f, session);
  bench::Setting setting = asked;
  require_devices(devices, setting.task.dtype);
  setting.task.host.assign(devices.size(), 0);
  const collectives::Topology found = collectives::discover(session.bootstrap(), names_of(devices));
  session.connected();
  const collectives::Calibration calibration =
      device_costs(devices, found, f.assumed ? DeviceCosts::kAssumed : DeviceCosts::kFresh);
  if (!calibration.note.empty()) complain(calibration.note);
  // There are no assumed costs for a single GPU, whose ranks meet in its own memory.
  const bool priced = !f.assumed || collectives::each_gpu(names_of(devices)).size() != 1;
  const auto counts = f.counts();
  const auto planned = bench::planned(setting.task, calibration.topology, counts);
  const std::chrono::seconds deadline(f.deadline);
  const auto nccl = nccl_of(devices, deadline);
  bench::DeviceSetting on{.devices = devices,
                          .costs = calibration.topology.hosts[0].costs,
                          .nccl = nccl.get(),
                          .deadline = deadline};
  if (f.devices.copy) on.copied = collectives::parse_size(*f.devices.copy);
  bench::DeviceRanks ranks(setting, on);
  const bench::Form form = f.form();
  const bool explains = form == bench::Form::kTable && !f.verbosity.quiet;
  if (explains) print(head(devices));
  if (form != bench::Form::kJson) print(bench::heading(form, bench::Rival::kNccl) + "\n");
  bench::Verdict verdict;
  std::vector<bench::Row> rows;
  for (const std::size_t count : counts) {
    for (const auto& choice : bench::choices(setting.task, f.algorithm, count, planned)) {
      bench::Row row;
      row.task = setting.task;
      row.bytes = count * engine::size_of(setting.task.dtype), row.count = count;
      row.choice = choice;
      if (!priced) row.choice.predicted_us.reset();
      row.devices = fmt::format("{}", fmt::join(names_of(devices), ","));
      row.measured = ranks.measure(choice.algorithm, count);
      verdict.add(row.measured.wrong);
      verdict.add_rival(row.measured.rival_wrong);
      rows.push_back(row);
      print(bench::to_text(row, form, bench::Rival::kNccl) + "\n");
    }
  }
  if (explains) print(foot(devices, rows));
  if (!f.output.plot.empty()) {
    bench::write_svg(f.output.plot, rows, f.title(int(devices.size()), "devices"), kNccl);
    f.verbosity.written(f.output.plot);
  }
  for (const std::string& line : verdict.lines(kNccl)) complain(line);
  return verdict.right();
}

}  // namespace lockstep::tools
