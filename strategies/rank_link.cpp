// SPDX-License-Identifier: MIT
#include "strategies/rank_link.h"

#include <algorithm>
#include <random>
#include <set>

#include "collectives/tcp/tcp_transport.h"
#include "engine/base/error.h"

namespace lockstep::strategies {

using collectives::Space;
using collectives::Team;

namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kKeyBytes = 32;

std::size_t pages(std::size_t bytes) {
  return (std::max<std::size_t>(bytes, 1) + kPage - 1) / kPage * kPage;
}

std::string random_key() {
  std::random_device device;
  std::string key;
  while (key.size() < kKeyBytes) key += char(device() & 0xff);
  return key;
}

// The part of a text before and behind its first end of line.
std::pair<std::string, std::string> halves(const std::string& text) {
  const std::size_t cut = text.find('\n');
  if (cut == std::string::npos) return {text, {}};
  return {text.substr(0, cut), text.substr(cut + 1)};
}

}  // namespace

RankLink::RankLink(const Ranks& ranks, collectives::StepPlan plan, std::size_t bytes,
                   std::size_t scratch, const std::string& what)
    : plan_(std::move(plan)) {
  const std::string mine = fmt::format("{:016x}", collectives::hash(plan_));
  const auto all = ranks.bootstrap.all_gather(mine, what + ": plans");
  for (std::size_t rank = 0; rank < all.size(); ++rank)
    engine::require(all[rank] == all[0],
                    "{}: rank {} plans it differently from rank 0; all must ask for the same", what,
                    rank);
  map_memory(ranks, bytes, scratch, what);
  transport_ = connect_hosts(ranks, what);
  collectives::ExecutorOptions options;
  options.deadline = ranks.deadline;
  executor_.emplace(ranks.rank(), *team_, transport_.get(), ranks.ops, collectives::OwnedState{},
                    options);
  executor_->open(plan_);
}

// Every rank makes its block, the first of each host the control block too; then all map all of
// their host.
void RankLink::map_memory(const Ranks& ranks, std::size_t bytes, std::size_t scratch,
                          const std::string& what) {
  const int me = ranks.rank(), here = ranks.host[std::size_t(me)];
  std::vector<int> local;
  for (int rank = 0; rank < ranks.size(); ++rank)
    if (ranks.host[std::size_t(rank)] == here) local.push_back(rank);
  const std::size_t block = pages(bytes) + pages(scratch);
  mine_.emplace_back(fmt::format("lockstep {} rank {}", what, me), block);
  if (local.front() == me)
    mine_.emplace_back("lockstep control", Team::control_bytes(local.size(), plan_.size()));
  std::string addresses = to_text(mine_[0].address());
  if (mine_.size() > 1) addresses += "\n" + to_text(mine_[1].address());
  const auto all = ranks.bootstrap.all_gather(addresses, what + ": memory of the ranks");
  auto map = [&](const std::string& address) {
    peers_.push_back(collectives::map_peer(collectives::mapping_address(address)));
    return peers_.back().data();
  };
  std::byte* control = nullptr;
  std::vector<std::byte*> blocks;
  for (const int rank : local) {
    const auto [memory, rest] = halves(all[std::size_t(rank)]);
    blocks.push_back(rank == me ? mine_[0].data() : map(memory));
    if (!rest.empty()) control = rank == me ? mine_[1].data() : map(rest);
  }
  ranks.bootstrap.all_gather("", what + ": memory is mapped");
  for (collectives::MappedMemory& memory : mine_) memory.close_file();
  team_.emplace(local, plan_.size(), control);
  for (std::size_t i = 0; i < local.size(); ++i) {
    team_->set_base(local[i], Space::kGradient, blocks[i]);
    team_->set_base(local[i], Space::kScratch, blocks[i] + pages(bytes));
  }
  data_ = mine_[0].data();
}

std::unique_ptr<collectives::Transport> RankLink::connect_hosts(const Ranks& ranks,
                                                                const std::string& what) {
  if (std::set<int>(ranks.host.begin(), ranks.host.end()).size() < 2) return nullptr;
  const int me = ranks.rank();
  std::set<std::pair<int, int>> pairs;
  for (const collectives::Stage& stage : plan_)
    for (const collectives::Lane& lane : stage.plan.lanes[std::size_t(me)])
      for (const collectives::Step& step : lane)
        if (step.peer >= 0) pairs.insert({me, step.peer});
  collectives::TcpFabric fabric;
  const auto all = ranks.bootstrap.all_gather(fabric.address() + "\n" + random_key(),
                                              what + ": addresses of the ranks");
  std::vector<std::string> address;
  for (const std::string& text : all) address.push_back(halves(text).first);
  return std::move(fabric.connect({me}, {pairs.begin(), pairs.end()}, address,
                                  halves(all[0]).second, ranks.deadline)[0]);
}

void RankLink::check() const {
  if (team_->stopped()) team_->rethrow();
}

void RankLink::start(int plan) {
  check();
  executor_->start(plan, nullptr);
}

void RankLink::progress() {
  executor_->progress();
  check();
}

}  // namespace lockstep::strategies
