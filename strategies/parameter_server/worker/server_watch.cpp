// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/worker/server_watch.h"

#include <fmt/format.h>
#include <ranges>
#include <utility>

namespace lockstep::strategies {

using engine::Code;
using engine::Error;

namespace {

constexpr std::size_t kSaved = 3;  // number of checkpoints that are remembered

}  // namespace

ServerWatch::ServerWatch(Servers& servers, ServerWatchOptions options,
                         std::function<void(const Error&)> failed)
    : servers_(servers), options_(std::move(options)), failed_(std::move(failed)) {}

ServerWatch::~ServerWatch() {
  stop();
}

void ServerWatch::start() {
  engine::invariant(!thread_.joinable(), "a watch that runs is started");
  saved_.clear();
  ends_ = false;
  thread_ = std::thread([this] { run(); });
}

void ServerWatch::stop() {
  {
    std::scoped_lock lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ServerWatch::saved(const std::string& folder, std::int64_t step) {
  std::scoped_lock lock(mutex_);
  saved_.push_back({folder, step, true});
  if (saved_.size() > kSaved) saved_.erase(saved_.begin());
}

void ServerWatch::restored(const std::string& folder, std::int64_t step) {
  std::scoped_lock lock(mutex_);
  saved_.assign(1, {folder, step, false});
}

void ServerWatch::run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.interval, [&] { return ends_; })) {
    for (std::size_t server = 0; server < servers_.size() && !ends_ && !suspended_; ++server) {
      lock.unlock();
      poll(server);
      lock.lock();
    }
  }
}

void ServerWatch::poll(std::size_t server) {
  try {
    if (!servers_.probe(server, options_.interval)) recover(server);
  } catch (const Error& error) {
    options_.log.debug("server {}: {}", server, error.what());
    if (error.code() != Code::kInvalid) return;
    taken_ = true;
    failed_(Error(Code::kPeerLost,
                  fmt::format("another chief has opened container \"{}\" on server {}: {}",
                              options_.container, server, error.what())));
  }
}

void ServerWatch::recover(std::size_t server) {
  const std::string who = fmt::format("server {} ({})", server, servers_.address(server));
  const auto lost = [&](Code code, const std::string& rest) {
    failed_(Error(code, fmt::format("{} came back without its variables: {}", who, rest)));
  };
  if (options_.synchronous)
    return lost(Code::kUnavailable, "synchronous training goes on from a checkpoint as a whole");
  std::vector<Saved> saved;
  {
    std::scoped_lock lock(mutex_);
    saved = saved_;
  }
  std::string wrong = "there is no checkpoint yet";
  for (const Saved& checkpoint : saved | std::views::reverse) {
    try {
      std::vector<std::string> zero;
      if (!checkpoint.own) zero.emplace_back(Servers::kOwnState);
      servers_.restore(server, checkpoint.folder, checkpoint.step, zero);
      options_.log.warning(
          "{} came back, and was given the checkpoint of step {}; what was pushed there since is "
          "lost",
          who, checkpoint.step);
      return;
    } catch (const Error& error) {
      if (error.code() == Code::kUnavailable || error.code() == Code::kTimeout) throw;
      if (error.code() == Code::kIo) return lost(Code::kIo, error.what());
      wrong = error.what();
    }
  }
  lost(Code::kPeerLost, wrong);
}

}  // namespace lockstep::strategies
