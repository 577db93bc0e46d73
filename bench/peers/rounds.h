// SPDX-License-Identifier: MIT
// Times a peer's all-reduce like `lockstep bench` times lockstep's. In every round the ranks write
// their inputs, meet at flags in shared memory, reduce in place, and meet again. Then they compare
// every element of the result. The time of a round is that of the slowest rank; a size has the
// median over rounds. float32, ranks of one host, one thread per rank. The program exits if a
// result is wrong. Before each size ranks 0 and 1 meet many times, which tells how far their
// processors are apart.
#pragma once
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

namespace peers {

constexpr int kMostRanks = 64, kMostRounds = 1000, kLeastRounds = 12, kWarmUp = 4;
constexpr int kMeetings = 4000, kTries = 5;
constexpr int kBareSpins = 2000;  // then yields the core
constexpr int kYields = 2200;     // then sleeps, if allowed
constexpr std::size_t kBytes = std::size_t(1) << 30;
constexpr std::size_t kHuge = std::size_t(4) << 20;  // bytes, as in engine/device/buffer.cpp
// Time limit of a size, once it has the least number of rounds.
constexpr std::chrono::seconds kMost(2);

// All ranks map this memory; its file is initially empty.
struct Shared {
  struct alignas(64) Flag {
    std::atomic<long> met;
  };
  Flag flags[kMostRanks];
  // Rank 0 sets it between two meetings if the time of this size is over.
  std::atomic<bool> over;
  double us[kMostRanks][kMostRounds];
};

class Rounds {
 public:
  Rounds(int rank, int ranks, const char* file) : rank_(rank), ranks_(ranks) {
    const int opened = open(file, O_RDWR);
    if (opened < 0 || ranks > kMostRanks || ftruncate(opened, sizeof(Shared)) != 0)
      fail("cannot use the file of the flags");
    void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    if (memory == MAP_FAILED) fail("cannot map the file of the flags");
    shared_ = static_cast<Shared*>(memory);
    pin();
  }

  // Times sizes from `min` to `max` bytes, each `factor` times the previous one. Rank 0 prints a
  // JSON object per size.
  void run(std::size_t min, std::size_t max, std::size_t factor,
           const std::function<void(float*, std::size_t)>& all_reduce) {
    for (std::size_t bytes = min; bytes <= max; bytes *= factor) time(bytes, all_reduce);
  }

 private:
  [[noreturn]] void fail(const char* why) const {
    std::fprintf(stderr, "rank %d: %s\n", rank_, why);
    std::exit(1);
  }

  // Binds each rank to a processor of its own if there are enough.
  void pin() const {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    if (ranks_ > CPU_COUNT(&allowed)) return;
    for (int cpu = 0, place = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &allowed) || place++ != rank_) continue;
      CPU_ZERO(&allowed);
      CPU_SET(cpu, &allowed);
      sched_setaffinity(0, sizeof allowed, &allowed);
      return;
    }
  }

  // A rank with kSleeps sleeps during a long wait at a meeting before which no clock runs, because
  // a library's threads may need the processor.
  enum class Patience { kLooks, kSleeps };
  void meet(Patience patience = Patience::kLooks) { meet(ranks_, patience); }
  void meet(int ranks, Patience patience) {
    shared_->flags[rank_].met.store(++met_, std::memory_order_release);
    for (int rank = 0, spins = 0; rank < ranks;) {
      if (shared_->flags[rank].met.load(std::memory_order_acquire) >= met_) {
        ++rank;
      } else if (++spins > kBareSpins) {
        if (patience == Patience::kSleeps && spins > kYields) {
          std::this_thread::sleep_for(std::chrono::microseconds(20));
        } else {
          sched_yield();
        }
      }
    }
  }

  // Returns the nanoseconds of a meeting of ranks 0 and 1, the least of several tries.
  double pair_ns() {
    double least = 1e9;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      meet();
      const auto begin = std::chrono::steady_clock::now();
      for (int i = 0; i < kMeetings; ++i)
        rank_ < 2 ? meet(std::min(ranks_, 2), Patience::kLooks) : void(++met_);
      const std::chrono::duration<double, std::nano> took =
          std::chrono::steady_clock::now() - begin;
      least = std::min(least, took.count() / kMeetings);
    }
    meet();
    return least;
  }

  void time(std::size_t bytes, const std::function<void(float*, std::size_t)>& all_reduce) {
    const std::size_t count = bytes / sizeof(float);
    // Huge pages are requested like in lockstep's buffers, for the same reason.
    const std::size_t page = bytes >= kHuge ? std::size_t(2) << 20 : 4096;
    const std::size_t room = (bytes + page - 1) / page * page;
    auto* data = static_cast<float*>(std::aligned_alloc(page, room));
    if (bytes >= kHuge) madvise(data, room, MADV_HUGEPAGE);
    const int most =
        int(std::clamp(kBytes / bytes, std::size_t(kLeastRounds), std::size_t(kMostRounds)));
    const double pair = pair_ns();
    const auto first = std::chrono::steady_clock::now();
    int rounds = 0;
    for (int round = -kWarmUp; round < most; ++round) {
      const auto number = float(round + kWarmUp + 1);
      std::fill_n(data, count, number * float(rank_ + 1));
      if (rank_ == 0)
        shared_->over = round >= kLeastRounds && std::chrono::steady_clock::now() - first > kMost;
      meet(Patience::kSleeps);
      if (shared_->over) break;
      meet();
      const auto begin = std::chrono::steady_clock::now();
      all_reduce(data, count);
      const std::chrono::duration<double, std::micro> took =
          std::chrono::steady_clock::now() - begin;
      meet(Patience::kSleeps);
      const float right = number * float(ranks_ * (ranks_ + 1) / 2);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) wrong += data[i] != right;
      if (wrong > 0) fail("a wrong sum");
      if (round >= 0) shared_->us[rank_][rounds++] = took.count();
    }
    meet();
    if (rank_ == 0) print(bytes, rounds, pair);
    meet();
    std::free(data);
  }

  void print(std::size_t bytes, int rounds, double pair) const {
    std::vector<double> slowest(std::size_t(rounds), 0.0);
    for (int round = 0; round < rounds; ++round)
      for (int rank = 0; rank < ranks_; ++rank)
        slowest[std::size_t(round)] =
            std::max(slowest[std::size_t(round)], shared_->us[rank][round]);
    std::sort(slowest.begin(), slowest.end());
    std::printf("{\"bytes\": %zu, \"us\": %.4f, \"barrier_ns\": %.1f}\n", bytes,
                slowest[slowest.size() / 2], pair);
    std::fflush(stdout);
  }

  int rank_, ranks_;
  Shared* shared_ = nullptr;
  long met_ = 0;
};

}  // namespace peers
