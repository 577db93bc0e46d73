// SPDX-License-Identifier: MIT
// The chief's watch over its servers. It polls them. A server that came back empty gets the last
// checkpoint of its shards; pushes since that checkpoint are lost.
//
// Synchronous training cannot continue with one older shard. In that case, or if no checkpoint can
// be read, training fails with Error(kUnavailable), which a retry of `fit` handles, Error(kIo) or
// Error(kPeerLost). An unreachable server is no failure: it may come back, and calls to it have
// their own deadlines.
//
// Threads: one of its own polls; one thread calls `start` and `stop`; the rest is thread-safe.
// Built only with protobuf.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "strategies/parameter_server/worker/servers.h"

namespace lockstep::strategies {

struct ServerWatchOptions {
  std::string container = {};
  bool synchronous = false;
  // Interval of polls, and the deadline of each.
  std::chrono::milliseconds interval{1000};
  engine::Log log = engine::Log();
};

class ServerWatch {
 public:
  // Calls `failed` on the watch's thread if training fails; `failed` suspends the watch. `servers`
  // must outlive the watch.
  ServerWatch(Servers& servers, ServerWatchOptions options,
              std::function<void(const engine::Error&)> failed);
  ~ServerWatch();

  // Starts polling for a job that was just opened and has no checkpoint yet.
  void start();
  void stop();  // also waits for a poll in progress
  // Prevents polls until `resume`, after training has failed.
  void suspend() noexcept { suspended_ = true; }
  void resume() noexcept { suspended_ = false; }
  // Remembers a checkpoint that was written or read. Only the last three are kept.
  void saved(const std::string& folder, std::int64_t step);
  void restored(const std::string& folder, std::int64_t step);
  // Returns whether another chief has opened the container.
  bool taken() const { return taken_; }

 private:
  struct Saved {
    std::string folder;
    std::int64_t step = 0;
    // This job wrote it, so its push counts are valid.
    bool own = false;
  };
  void run();
  void poll(std::size_t server);
  void recover(std::size_t server);

  Servers& servers_;
  const ServerWatchOptions options_;
  const std::function<void(const engine::Error&)> failed_;
  std::atomic<bool> suspended_ = false, taken_ = false;
  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool ends_ = false;
  std::vector<Saved> saved_;
  std::thread thread_;
};

}  // namespace lockstep::strategies
