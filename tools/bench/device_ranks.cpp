// SPDX-License-Identifier: MIT
#include "tools/bench/device_ranks.h"

#include <algorithm>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/ops/ops.h"
#include "tools/bench/batches.h"
#include "tools/bench/flat_replicas.h"

namespace lockstep::tools::bench {
namespace {

constexpr int kBatchTurns = 7;

using Devices = std::vector<engine::Device*>;

std::size_t most_on_a_device(const Devices& devices) {
  std::ptrdiff_t most = 0;
  for (engine::Device* device : devices) most = std::max(most, std::ranges::count(devices, device));
  return std::size_t(most);
}

std::size_t different_devices(Devices devices) {
  std::ranges::sort(devices);
  return std::size_t(std::unique(devices.begin(), devices.end()) - devices.begin());
}

// Returns the figures of the samples in microseconds.
Times times_of_batches(const Batches& batches) {
  std::vector<double> us;
  for (const double seconds : batches.samples) us.push_back(1e6 * seconds);
  return times_of(std::move(us));
}

FlatOptions flat_options(const Setting& setting, const DeviceSetting& of_devices,
                         const std::string& algorithm, std::size_t count) {
  FlatOptions options;
  options.devices = of_devices.devices;
  options.elements = count;
  options.dtype = setting.task.dtype;
  options.algorithm = algorithm;
  options.update = strategies::Update::kSeparate;
  options.bucket_bytes = (count + engine::kBlock) * sizeof(double);  // enough for a single bucket
  options.deadline = of_devices.deadline;
  return options;
}

}  // namespace

double received_rate(const Devices& devices, const collectives::HostCosts& costs) {
  double least = 0;
  for (engine::Device* device : devices) {
    double rate = costs.port * double(std::ranges::count(devices, device));
    for (const collectives::PeerLink& link : costs.links) {
      const bool from = devices[std::size_t(link.a)] == device;
      const bool to = devices[std::size_t(link.b)] == device;
      if (from != to) rate += link.bandwidth;
    }
    least = least == 0 ? rate : std::min(least, rate);
  }
  return least;
}

DeviceRanks::DeviceRanks(const Setting& setting, const DeviceSetting& of_devices)
    : setting_(setting), of_devices_(of_devices) {
  const Devices& devices = of_devices_.devices;
  engine::require(devices.size() >= 2 && devices.size() <= kMostReplicas,
                  "{} ranks on devices: 2 to {} can be timed", devices.size(), kMostReplicas);
  ops_ = devices[0]->ops(setting.task.dtype, {});
  copy_ = std::make_unique<CopyCeiling>(*ops_, of_devices_.copied);
}

Measured DeviceRanks::measure(const std::string& algorithm, std::size_t count) {
  const NcclRanks* const nccl = of_devices_.nccl;
  FlatReplicas replicas(flat_options(setting_, of_devices_, algorithm, count));
  Measured measured;
  const auto check = [&] {
    replicas.all_reduce(1);
    add(measured.wrong, replicas.wrong_sums());
    if (nccl == nullptr) return;
    replicas.all_reduce(1, *nccl);
    add(measured.rival_wrong, replicas.wrong_sums());
  };
  Batches copy{[&](int calls) { return copy_->seconds(calls); }};
  const int most = std::min(Batches::kMostCalls, replicas.most_calls());
  Batches ours{[&](int calls) { return replicas.all_reduce(calls); }, most};
  Batches theirs{[&](int calls) { return replicas.all_reduce(calls, *nccl); }, most};
  std::vector<Batches*> all{&copy, &ours};
  if (nccl != nullptr) all.push_back(&theirs);
  if (setting_.check == Check::kAll) check();
  time_batches(all, setting_.iterations > 0 ? setting_.iterations : kBatchTurns,
               of_devices_.batch_seconds);
  if (setting_.check != Check::kNone) check();
  engine::require(copy_->holds(), "the copy is not what was copied");
  const double rate = copy_->moved() / engine::median(copy.samples);
  measured.in_place = times_of_batches(ours);
  measured.iterations = measured.in_place.rounds;
  if (nccl != nullptr) measured.rival = times_of_batches(theirs);
  measured.copy_gb_s = rate / 1e9;
  measured.roofline_us = 1e6 * roofline(double(count * engine::size_of(setting_.task.dtype)), rate);
  return measured;
}

double DeviceRanks::roofline(double bytes, double copy_rate) const {
  const Devices& devices = of_devices_.devices;
  const double memory = 2 * double(most_on_a_device(devices)) * bytes / copy_rate;
  const double rate = received_rate(devices, of_devices_.costs);
  const double count = double(different_devices(devices));
  return rate > 0 ? std::max(memory, 2 * (count - 1) / count * bytes / rate) : memory;
}

}  // namespace lockstep::tools::bench
