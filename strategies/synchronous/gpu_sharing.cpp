// SPDX-License-Identifier: MIT
#include "strategies/synchronous/gpu_sharing.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/memory/mapped_memory.h"
#include "engine/base/error.h"
#include "engine/device/process_sharing.h"

namespace lockstep::strategies {
namespace {

using engine::ProcessSharing;
using nlohmann::json;

constexpr int kMostSharing = 64;  // replicas that one kernel can add

std::string dump(const json& told) {
  return told.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Exports this process's resources for others to open, for its lifetime.
class Offer {
 public:
  explicit Offer(const std::vector<engine::Device*>& devices) {
    told_ = {{"replicas", devices.size()}, {"place", ""}, {"refusal", ""}};
    try {
      device_ = dynamic_cast<ProcessSharing*>(devices[0]);
      const std::string id = to_string(devices[0]->id());
      engine::require(device_ != nullptr, "{} shares nothing with other processes", id);
      told_["place"] = device_->place();
      for (const engine::Device* other : devices)
        engine::require(other == devices[0],
                        "its replicas are on {} and {}, and one GPU a process is shared so far", id,
                        to_string(other->id()));
      memory_ = devices[0]->allocate(ProcessSharing::kShareUnit);
      event_ = device_->make_event();
      page_ = collectives::MappedMemory("lockstep: is memory shared", collectives::kPageBytes);
      told_["memory"] = device_->export_memory(memory_.data());
      told_["event"] = event_->exported();
      told_["page"] = collectives::to_text(page_.address());
    } catch (const engine::Error& error) {
      told_["refusal"] = error.what();
    }
  }

  std::string text() const { return dump(told_); }

  // Returns why another process's resources cannot be opened; empty if they can. Closes everything
  // again.
  std::string try_to_open(const json& theirs) const {
    try {
      const engine::Buffer memory =
          device_->open_memory(theirs.at("memory"), ProcessSharing::kShareUnit);
      const std::unique_ptr<engine::ProcessEvent> event = device_->open_event(theirs.at("event"));
      const engine::Buffer page =
          collectives::map_peer(collectives::mapping_address(theirs.at("page").get<std::string>()));
      const engine::Buffer pinned = device_->pin(page.data(), collectives::kPageBytes);
      return {};
    } catch (const engine::Error& error) {
      return error.what();
    } catch (const json::exception& error) {
      return error.what();
    }
  }

 private:
  json told_;
  ProcessSharing* device_ = nullptr;
  engine::Buffer memory_;
  std::unique_ptr<engine::ProcessEvent> event_;
  collectives::MappedMemory page_;
};

// Returns why a machine's processes cannot share, from the reports of all before any test.
std::string refusal_of(const std::vector<int>& processes, const std::vector<json>& told) {
  int replicas = 0;
  for (const int process : processes) {
    const json& one = told[std::size_t(process)];
    if (const std::string why = one.at("refusal"); !why.empty())
      return fmt::format("process {} cannot share its GPU: {}", process, why);
    replicas += one.at("replicas").get<int>();
  }
  if (replicas > kMostSharing)
    return fmt::format("{} replicas are on one host, and at most {} add in each other's memory",
                       replicas, kMostSharing);
  return {};
}

std::vector<json> told_by_processes(const std::vector<std::string>& texts) {
  std::vector<json> all;
  for (std::size_t process = 0; process < texts.size(); ++process) {
    all.push_back(json::parse(texts[process], nullptr, false));
    engine::require(all.back().is_object(), "process {} tells of its GPUs in other words", process);
  }
  return all;
}

}  // namespace

bool GpuSharing::any() const {
  for (std::size_t process = 0; process < with.size(); ++process)
    if (with[process] != int(process)) return true;
  return false;
}

GpuSharing find_gpu_sharing(collectives::Bootstrap& bootstrap,
                            const std::vector<engine::Device*>& devices) {
  const std::vector<int> machine = bootstrap.hosts();
  std::map<int, std::vector<int>> machines;  // the processes of each machine
  for (std::size_t process = 0; process < machine.size(); ++process)
    machines[machine[process]].push_back(int(process));
  const int me = bootstrap.process();
  const std::vector<int>& here = machines.at(machine[std::size_t(me)]);

  const Offer mine(devices);
  const std::vector<json> told =
      told_by_processes(bootstrap.all_gather(mine.text(), "whether processes share GPUs"));
  std::string failed;  // error of this process
  if (refusal_of(here, told).empty()) {
    for (const int other : here) {
      if (other == me || !failed.empty()) continue;
      failed = mine.try_to_open(told[std::size_t(other)]);
      if (!failed.empty())
        failed = fmt::format("process {} cannot use the GPU of process {}: {}", me, other, failed);
    }
  }
  const std::vector<json> tried = told_by_processes(
      bootstrap.all_gather(dump({{"failed", failed}}), "whether processes open GPUs of others"));

  GpuSharing found;
  for (const json& one : told) found.places.push_back(one.at("place"));
  found.with.resize(machine.size());
  for (const auto& [number, processes] : machines) {
    std::string refusal = refusal_of(processes, told);
    for (const int process : processes)
      if (refusal.empty()) refusal = tried[std::size_t(process)].at("failed");
    for (const int process : processes)
      found.with[std::size_t(process)] = refusal.empty() ? processes.front() : process;
    if (processes.size() > 1 && found.refusal.empty()) found.refusal = refusal;
  }
  return found;
}

}  // namespace lockstep::strategies
