// SPDX-License-Identifier: MIT
#include "strategies/synchronous/gpu_spaces.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "collectives/bootstrap/outcome.h"
#include "engine/base/error.h"

namespace lockstep::strategies {

using collectives::Space;
using collectives::Team;
using engine::Code;
using nlohmann::json;

namespace {

constexpr Space kOfGpu[] = {Space::kGradient, Space::kWeight, Space::kScratch, Space::kNorms};
// Time for queued GPU work to end by itself after a process is lost.
constexpr std::chrono::seconds kGrace{2};

}  // namespace

GpuSpaces::GpuSpaces(const collectives::JobRanks& ranks, engine::ProcessSharing* device,
                     const ArenaLayout& layout, const collectives::HostMemory& memory, Team& team,
                     std::chrono::milliseconds deadline)
    : rank_(ranks.mine().front()),
      device_(device),
      team_(memory.local(), team.plans(), memory.control()),
      deadline_(deadline) {
  const std::vector<std::string> texts = collectives::all_or_none(
      ranks.bootstrap, "memory of GPUs", [&] { return told(ranks, team); });
  collectives::all_or_none(ranks.bootstrap, "memory of GPUs is open", [&] {
    open(ranks, layout, memory, team, texts);
    return std::string();
  });
  if (device_ != nullptr) device_->on_waiting([this](std::chrono::nanoseconds w) { look(w); });
}

GpuSpaces::~GpuSpaces() {
  if (device_ != nullptr) device_->on_waiting({});
}

// Returns the exports of this process's ranks, in order.
std::string GpuSpaces::told(const collectives::JobRanks& ranks, Team& team) {
  json all = json::array();
  if (device_ == nullptr) return all.dump();
  for (const int rank : ranks.mine()) {
    events_.push_back(device_->make_event());
    team.set_event(rank, events_.back().get());
    json spaces = json::array();
    for (const Space space : kOfGpu)
      spaces.push_back(device_->export_memory(team.base(rank, space)));
    all.push_back({{"event", events_.back()->exported()}, {"spaces", spaces}});
  }
  return all.dump();
}

void GpuSpaces::open(const collectives::JobRanks& ranks, const ArenaLayout& layout,
                     const collectives::HostMemory& memory, Team& team,
                     const std::vector<std::string>& texts) {
  if (device_ == nullptr) return;
  for (const int rank : ranks.local()) {
    std::byte* const block = memory.block(rank);
    pinned_.push_back(device_->pin(block, layout.host_bytes()));
    const int process = ranks.process[std::size_t(rank)];
    if (process == ranks.bootstrap.process()) continue;
    team.set_base(rank, Space::kExchange, block);
    const auto first = std::find(ranks.process.begin(), ranks.process.end(), process);
    const json theirs = json::parse(texts[std::size_t(process)])
                            .at(std::size_t(rank - (first - ranks.process.begin())));
    for (std::size_t i = 0; i < std::size(kOfGpu); ++i) {
      opened_.push_back(
          device_->open_memory(theirs.at("spaces").at(i), layout.space_bytes(kOfGpu[i])));
      team.set_base(rank, kOfGpu[i], opened_.back().data());
    }
    events_.push_back(device_->open_event(theirs.at("event")));
    team.set_event(rank, events_.back().get());
  }
}

// Queued work has failed, for example because the memory of a dying process is gone. The system may
// report the death later than the GPU, so this waits for the report.
void GpuSpaces::look_at_failure() const {
  const auto until = engine::Clock::now() + kGrace;
  while (!team_.stopped() && engine::Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (team_.stopped()) team_.rethrow();
}

// Checks a wait for the GPU, which has lasted `waited`. If a rank failed without dying, its queued
// work completes, and so do the waits for it.
void GpuSpaces::look(std::chrono::nanoseconds waited) {
  if (waited == std::chrono::nanoseconds::max()) return look_at_failure();
  const std::chrono::milliseconds deadline = deadline_;
  if (!team_.stopped()) {
    if (waited < deadline) return;
    team_.stop({Code::kTimeout,
                fmt::format("rank {} waited {} ms for its GPU, in which sums wait for GPUs of "
                            "other processes: one of them may be stuck",
                            rank_, deadline.count())});
  }
  try {
    team_.rethrow();
  } catch (const engine::Error& error) {
    const bool gone = error.code() == Code::kPeerLost;
    if (waited < (gone ? std::min<std::chrono::nanoseconds>(kGrace, deadline) : deadline)) return;
    device_->give_up();
    throw;
  }
}

}  // namespace lockstep::strategies
