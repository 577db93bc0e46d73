// SPDX-License-Identifier: MIT
// Runs one rank of a job of the lower layer under mpirun. The first argument selects its part:
//   sums       sums and buckets of several lengths; exit code 0 if all are exact
//   differ     rank 1 asks for another count
//   die        rank 1 is killed between two sums; the others must be told
//   stop       rank 1 stops calling, but lives; the others must be told within the deadline
//   calibrate  calibrates; rank 1 is killed in the middle of it
//   exchange   the same, but rank 1 is killed while the others wait for its times
//   communicator, allocate, buckets
//              makes that object; rank 1 is killed in the middle of it; the others still end their
//              session
//   sum        the same, but rank 1 is killed while the others wait for its part of a sum
//   large      prints its pid and sums 64 MiB again and again, until it is told why it cannot
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <thread>

#include "collectives/communicator/buckets.h"
#include "collectives/job/calibration.h"
#include "engine/base/error.h"
#include "strategies/session/ranks.h"
#include "test/strategies/observed_device.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;

template <class T>
std::size_t wrong_sums(collectives::Communicator& c) {
  std::size_t wrong = 0;
  const auto expect = [&](std::span<T> values, auto&& sum) {
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = T((i + std::size_t(c.rank()) * 3) % 64);
    sum();
    for (std::size_t i = 0; i < values.size(); ++i) {
      T right = 0;
      for (int r = 0; r < c.size(); ++r) right += T((i + std::size_t(r) * 3) % 64);
      wrong += values[i] != right;
    }
  };
  for (const std::size_t count : {0, 1, 7, 1024, 4097, 300001}) {
    std::vector<T> own(count);
    expect(own, [&] { c.all_reduce(std::span<T>(own)); });
    collectives::Buckets<T> buckets(c, {{nullptr, count}, {own.data(), count}},
                                    {.operation = collectives::Reduce::kSum});
    buckets.ready(0);
    expect(own, [&] {
      buckets.ready(1);
      buckets.wait();
    });
  }
  const std::span<float> shared = c.allocate<float>(5001);
  for (float& value : shared) value = float(c.rank());
  c.all_reduce(shared);
  for (const float value : shared) wrong += value != float(c.size() * (c.size() - 1) / 2);
  return wrong;
}

// Wraps a bootstrap, and kills rank 1 before it contributes to the exchange of `what`.
class KilledInExchange : public collectives::Bootstrap {
 public:
  KilledInExchange(collectives::Bootstrap& other, std::string what)
      : other_(other), what_(std::move(what)) {}
  std::string description() const override { return other_.description(); }
  int process() const override { return other_.process(); }
  int processes() const override { return other_.processes(); }
  std::vector<int> hosts() const override { return other_.hosts(); }
  void abandon(const engine::Error& why) noexcept override { other_.abandon(why); }
  void throw_if_abandoned() override { other_.throw_if_abandoned(); }
  void finish() override { other_.finish(); }
  std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override {
    if (what == what_) other_.all_gather("", what + ": all are there");
    if (what == what_ && process() == 1) {
      kill(getpid(), SIGKILL);
    }
    return other_.all_gather(mine, what);
  }

 private:
  collectives::Bootstrap& other_;
  std::string what_;
};

int calibrate(strategies::Session& session, const std::string& dies_in) {
  KilledInExchange bootstrap(session.bootstrap(), dies_in);
  std::atomic<int> reductions{0};
  const auto ops =
      test::observed(session.device("cpu").ops(engine::DType::kFloat32, {.threads = 1}),
                     [&](const engine::ReduceArguments&) {
                       if (dies_in.empty() && bootstrap.process() == 1 && ++reductions == 500)
                         kill(getpid(), SIGKILL);
                     });
  const auto topology = collectives::discover(bootstrap, {"cpu:0"});
  session.connected();
  collectives::Job job(collectives::ranks_of(bootstrap, topology), {});
  collectives::calibrate(job, topology, *ops, {});
  return 0;
}

// Makes the object that `part` names, and reports the end of the session.
int make(const std::string& part, int argc, char** argv) {
  {
    strategies::Session session(argc, argv);
    KilledInExchange bootstrap(session.bootstrap(),
                               (part == "allocate" ? "allocated memory" : part) + ": plans");
    session.connected();
    try {
      collectives::Communicator c(
          bootstrap, session.device("cpu").ops(engine::DType::kFloat32, {.threads = 1}),
          {.deadline = 60s});
      if (part == "allocate") c.allocate<float>(10);
      if (part == "sum") {
        if (c.rank() == 1) kill(getpid(), SIGKILL);
        c.barrier();
      }
      if (part == "buckets") collectives::Buckets<float>(c, {{nullptr, 10}});
    } catch (const engine::Error& error) {
      fmt::print("error {}: {}\n", name(error.code()), error.what());
    }
  }
  fmt::print("ended\n");
  return 0;
}

int play(const std::string& part, int argc, char** argv) {
  if (part == "communicator" || part == "allocate" || part == "buckets" || part == "sum")
    return make(part, argc, argv);
  strategies::Session session(argc, argv);
  if (part == "calibrate") return calibrate(session, "");
  if (part == "exchange") return calibrate(session, "calibration: times");
  const bool killed = part == "die" || part == "large";
  auto c = strategies::communicator(session, {.deadline = killed ? 60s : 2s});
  if (part == "sums") return wrong_sums<float>(c) + wrong_sums<double>(c) == 0 ? 0 : 1;
  if (part == "large") {
    const std::span<float> large = c.allocate<float>(std::size_t(16) << 20);
    c.barrier();
    fmt::print("rank {} pid {}\n", c.rank(), getpid());
    std::fflush(stdout);
    for (;;) c.all_reduce(large, collectives::Reduce::kMean);
  }
  std::vector<float> values(part == "differ" && c.rank() == 1 ? 7 : 10);
  if (part == "differ") {
    try {
      c.all_reduce(std::span(values));
    } catch (const engine::Error& error) {
      fmt::print("rank {}: error {}: {}\n", c.rank(), name(error.code()), error.what());
      return 0;  // orderly end: the job is whole
    }
    return 1;
  }
  const std::vector<std::string> pids =
      session.bootstrap().all_gather(fmt::format("{}", getpid()), "process ids");
  c.all_reduce(std::span(values));
  if (c.rank() == 1) {
    if (part == "die") kill(getpid(), SIGKILL);
    // Rank 1 lives until all others have ended.
    for (const std::string& pid : pids)
      while (std::stoi(pid) != getpid() && kill(std::stoi(pid), 0) == 0)
        std::this_thread::sleep_for(1ms);
    _exit(0);
  }
  c.all_reduce(std::span(values));
  return 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::play(argc > 1 ? argv[1] : "sums", argc, argv);
  } catch (const lockstep::engine::Error& error) {
    fmt::print("error {}: {}\n", name(error.code()), error.what());
    std::fflush(stdout);
    _exit(3);
  }
}
