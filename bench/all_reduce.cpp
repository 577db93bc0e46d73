// SPDX-License-Identifier: MIT
// How long an all-reduce takes: ranks as threads on one host, each algorithm, each size. Every
// round dirties its inputs and consumes its outputs outside the clock, since buffers that stay in a
// cache flatter; every result is compared with the exact sum. Prints the median over rounds of the
// slowest rank's time, and busbw = 2 (n - 1) / n bytes / time, which does not depend on n where
// memory is the limit (nccl-tests, PERFORMANCE.md). The time of a 4-byte all-reduce tells how far
// the cores are apart.
//
// usage: all_reduce [--ranks N] [--rounds N] [--bytes B,B,...] [--json]
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <barrier>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/executor.h"
#include "engine/device/buffer.h"
#include "engine/runtime/devices.h"

namespace lockstep {
namespace {

using collectives::Plan;
using collectives::Request;
using collectives::Space;
using engine::Clock;

struct Result {
  double seconds = 0;  // median over rounds of the slowest rank
  bool right = true;
};

// Small integers, so that every sum is exact in float32.
float input(int rank, int round, std::size_t i) {
  return float((i + std::size_t(rank) * 3 + std::size_t(round)) % 64);
}

class Ranks {
 public:
  Ranks(const Plan& plan, engine::Device& device)
      : plan_{{plan, {}, false}},
        n_(plan.ranks()),
        control_(collectives::Team::control_bytes(plan.lanes.size(), 1)) {
    std::vector<int> local;
    for (int rank = 0; rank < n_; ++rank) local.push_back(rank);
    team_ = std::make_unique<collectives::Team>(local, 1, control_.data());
    for (int rank = 0; rank < n_; ++rank) {
      memory_.emplace_back(plan.subject.end * sizeof(float));
      team_->set_base(rank, Space::kGradient, memory_.back().data());
      ops_.push_back(device.ops(engine::DType::kFloat32, {}));
      executors_.emplace_back(rank, *team_, nullptr, *ops_.back(), collectives::OwnedState{},
                              collectives::ExecutorOptions{});
      executors_.back().open(plan_);
    }
  }

  Result measure(int rounds) {
    std::vector<double> slowest(std::size_t(rounds), 0.0);
    std::vector<std::vector<double>> seconds(std::size_t(n_), slowest);
    std::barrier all(n_);
    std::atomic<bool> right{true};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < n_; ++rank)
      threads.emplace_back([&, rank] {
        for (int round = 0; round < rounds; ++round) {
          dirty(rank, round);
          all.arrive_and_wait();
          const auto begin = Clock::now();
          executors_[std::size_t(rank)].start(0, nullptr);
          executors_[std::size_t(rank)].wait(0);
          seconds[std::size_t(rank)][std::size_t(round)] =
              std::chrono::duration<double>(Clock::now() - begin).count();
          if (!consume(rank, round)) right = false;
          all.arrive_and_wait();
        }
      });
    for (auto& thread : threads) thread.join();
    for (const auto& mine : seconds)
      for (std::size_t i = 0; i < mine.size(); ++i) slowest[i] = std::max(slowest[i], mine[i]);
    std::nth_element(slowest.begin(), slowest.begin() + rounds / 2, slowest.end());
    return {slowest[std::size_t(rounds) / 2], right};
  }

 private:
  float* values(int rank) { return reinterpret_cast<float*>(memory_[std::size_t(rank)].data()); }
  void dirty(int rank, int round) {
    for (std::size_t i = 0; i < plan_[0].plan.subject.end; ++i)
      values(rank)[i] = input(rank, round, i);
  }
  bool consume(int rank, int round) {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < plan_[0].plan.subject.end; ++i) {
      float sum = 0;
      for (int r = 0; r < n_; ++r) sum += input(r, round, i);
      wrong += values(rank)[i] != sum;
    }
    return wrong == 0;
  }

  collectives::StepPlan plan_;
  int n_;
  engine::Buffer control_;
  std::unique_ptr<collectives::Team> team_;
  std::vector<engine::Buffer> memory_;
  std::vector<std::unique_ptr<engine::Ops>> ops_;
  std::deque<collectives::Executor> executors_;
};

int run(int ranks, int rounds, const std::vector<std::size_t>& sizes, bool json) {
  const auto devices = engine::all_devices();
  engine::Device& device = *devices.front();
  if (!json) {
    fmt::print("{} ranks as threads on {} cores, {}; median of {} rounds\n", ranks,
               std::thread::hardware_concurrency(), device.description(), rounds);
    fmt::print("{:>12} {:>8} {:>12} {:>12} {:>8}\n", "bytes", "", "us", "busbw GB/s", "result");
  }
  nlohmann::json object{{"ranks", ranks}, {"results", nlohmann::json::object()}};
  bool right = true;
  for (const std::size_t bytes : sizes) {
    double direct = 0;  // seconds
    for (const bool ring : {false, true}) {
      Request request;
      request.name = "benchmark";
      request.subject = {0, std::max<std::size_t>(1, bytes / sizeof(float))};
      request.host.assign(std::size_t(ranks), 0);
      const Plan plan = ring ? ring_all_reduce(request) : direct_all_reduce(request);
      const Result result = Ranks(plan, device).measure(rounds);
      right &= result.right;
      const std::size_t whole = request.subject.size() * sizeof(float);
      const double bus = 2.0 * (ranks - 1) / ranks * double(whole) / result.seconds / 1e9;
      if (!ring) direct = result.seconds;
      if (!json) {
        fmt::print("{:>12} {:>8} {:>12.1f} {:>12.2f} {:>8}\n", whole, plan.algorithm,
                   result.seconds * 1e6, bus, result.right ? "right" : "WRONG");
        continue;
      }
      object["results"][fmt::format("{}, {} bytes", plan.algorithm, whole)] = {
          {"us", result.seconds * 1e6}, {"busbw", bus}};
      if (ring)
        object["ratios"][fmt::format("ring over direct, {} bytes", whole)] =
            result.seconds / direct;
    }
  }
  if (json) fmt::print("{}\n", object.dump());
  return right ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  CLI::App app{"All-reduce of ranks that are threads of one process"};
  int ranks = 2, rounds = 21;
  bool json = false;
  std::vector<std::size_t> sizes{4, 4096, 65536, 1 << 20, 8 << 20, 64 << 20};
  app.add_option("--ranks", ranks, "how many")->check(CLI::Range(1, 64))->capture_default_str();
  app.add_option("--rounds", rounds, "of each size")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--bytes", sizes, "sizes, with commas between")
      ->delimiter(',')
      ->capture_default_str();
  app.add_flag("--json", json, "one JSON object instead of a table");
  CLI11_PARSE(app, argc, argv);
  return lockstep::run(ranks, rounds, sizes, json);
}
