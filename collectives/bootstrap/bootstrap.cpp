// SPDX-License-Identifier: MIT
#include "collectives/bootstrap/bootstrap.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace {

using engine::Code;

class SingleProcess : public Bootstrap {
 public:
  std::string description() const override { return "one process"; }
  int process() const override { return 0; }
  int processes() const override { return 1; }
  std::vector<std::string> all_gather(const std::string& mine, const std::string&) override {
    return {mine};
  }
  std::vector<int> hosts() const override { return {0}; }
  void abandon(const engine::Error&) noexcept override {}
  void throw_if_abandoned() override {}
  void finish() override {}
};

// Holds the state that the processes of one in-memory job share. A round begins with its first
// value and ends when all values have arrived. Its result stays until the next round ends, which
// needs all processes.
struct SharedExchange {
  explicit SharedExchange(std::vector<int> h) : host(std::move(h)), present(host.size(), false) {}
  std::vector<int> host;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<bool> present;
  std::vector<std::string> values = std::vector<std::string>(host.size()), result;
  std::string what;
  std::optional<engine::Error> broken;
  std::uint64_t round = 0;
};

class InMemory : public Bootstrap {
 public:
  InMemory(std::shared_ptr<SharedExchange> exchange, int process,
           std::chrono::milliseconds deadline)
      : exchange_(std::move(exchange)), process_(process), deadline_(deadline) {}
  std::string description() const override {
    return fmt::format("{} threads that play processes", processes());
  }
  int process() const override { return process_; }
  int processes() const override { return int(exchange_->host.size()); }
  std::vector<int> hosts() const override { return exchange_->host; }
  void finish() override { all_gather({}, "the end"); }
  // Stops the exchange of all views, since they are threads of one process.
  void abandon(const engine::Error& why) noexcept override {
    const std::scoped_lock lock(exchange_->mutex);
    if (!exchange_->broken) give_up(why);
  }
  void throw_if_abandoned() override {
    const std::scoped_lock lock(exchange_->mutex);
    fail_if_broken();
  }

  std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override {
    engine::require(mine.size() <= kMostBytes,
                    "process {} brings {} bytes to the exchange of {}; {} are the most", process_,
                    mine.size(), what, kMostBytes);
    SharedExchange& x = *exchange_;
    std::unique_lock lock(x.mutex);
    fail_if_broken();
    if (std::find(x.present.begin(), x.present.end(), true) == x.present.end()) x.what = what;
    if (x.what != what)
      break_off({Code::kInvalid, fmt::format("process {} exchanges {} while others exchange {}",
                                             process_, what, x.what)});
    x.values[std::size_t(process_)] = mine;
    x.present[std::size_t(process_)] = true;
    const std::uint64_t round = x.round;
    if (std::find(x.present.begin(), x.present.end(), false) == x.present.end()) {
      x.result = x.values;
      x.present.assign(x.present.size(), false);
      ++x.round;
      x.changed.notify_all();
      return x.result;
    }
    const auto over = [&] { return x.round != round || x.broken; };
    if (!x.changed.wait_until(lock, engine::Clock::now() + deadline_, over)) {
      std::vector<std::size_t> missing;
      for (std::size_t p = 0; p < x.present.size(); ++p)
        if (!x.present[p]) missing.push_back(p);
      break_off({Code::kTimeout, fmt::format("exchange of {}: after {} ms these processes are "
                                             "missing: {}",
                                             what, deadline_.count(), fmt::join(missing, " "))});
    }
    if (x.round == round) fail_if_broken();
    return x.result;
  }

 private:
  // Throws if the exchange is broken. After a failure it is unknown which round a value belongs to,
  // so every later call throws the same error.
  void fail_if_broken() const {
    if (exchange_->broken) throw engine::Error(*exchange_->broken);
  }
  void give_up(const engine::Error& why) noexcept {
    exchange_->broken = why;
    exchange_->changed.notify_all();
  }
  [[noreturn]] void break_off(const engine::Error& why) {
    give_up(why);
    throw engine::Error(why);
  }
  std::shared_ptr<SharedExchange> exchange_;  // shared, since views end in any order
  int process_;
  std::chrono::milliseconds deadline_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> Bootstrap::transports(
    const std::vector<int>&, const std::vector<std::pair<int, int>>&, const std::string& what) {
  engine::fail(
      Code::kInvalid,
      "{}transport mpi needs a job that MPI started, and this one is {}: use transport tcp", what,
      description());
}

std::unique_ptr<Bootstrap> single_process() {
  return std::make_unique<SingleProcess>();
}

std::vector<std::unique_ptr<Bootstrap>> in_memory_bootstrap(std::vector<int> host,
                                                            std::chrono::milliseconds deadline) {
  std::map<int, int> numbers;  // by first appearance, from 0
  for (int& h : host) h = numbers.emplace(h, int(numbers.size())).first->second;
  const auto exchange = std::make_shared<SharedExchange>(std::move(host));
  std::vector<std::unique_ptr<Bootstrap>> views;
  for (int process = 0; process < int(exchange->host.size()); ++process)
    views.push_back(std::make_unique<InMemory>(exchange, process, deadline));
  return views;
}

}  // namespace lockstep::collectives
