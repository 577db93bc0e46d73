// SPDX-License-Identifier: MIT
// Each time is that of kernels with many bytes, minus that of as many kernels with few bytes that
// are queued in the same way. So it is the time of the bytes alone.
#include "collectives/cost/gpu_probes.h"

#include <algorithm>
#include <array>
#include <functional>

#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/ops/reduce.h"

namespace lockstep::collectives {
namespace {

using engine::Clock;
using engine::Ops;

constexpr int kEnd = 0, kTurn = 1;        // events
constexpr std::size_t kSmallBytes = 256;  // bytes
constexpr const char* kFor = "measuring what GPUs cost each other";

class Measurement {
 public:
  Measurement(std::span<const GpuRank> ranks, const GpuProbes& probes)
      : probes_(probes), ranks_(ranks) {
    for (const GpuRank& rank : ranks) {
      gpus_.resize(std::max(gpus_.size(), rank.gpu + 1));
      if (gpus_[rank.gpu].rank == nullptr) gpus_[rank.gpu].rank = &rank;
    }
    const std::size_t bytes = std::max({probes.bytes, probes.between, kSmallBytes});
    for (std::size_t g = 0; g < gpus_.size(); ++g) {
      Gpu& gpu = gpus_[g];
      engine::invariant(gpu.rank != nullptr, "each GPU has a rank");
      gpu.from = ops(g).allocate(bytes, kFor);
      gpu.to = ops(g).allocate(bytes, kFor);
      const std::vector<float> numbers(bytes / sizeof(float), number(g));
      ops(g).write(numbers.data(), gpu.from.data(), numbers.size() * sizeof(float));
      ops(g).synchronize();
    }
  }

  GpuPaces run() {
    const std::size_t n = gpus_.size();
    GpuPaces paces;
    for (std::size_t g = 0; g < n; ++g) paces.memory.push_back(2 * pace(g, g, g, probes_.bytes));
    paces.links.resize(n * n);
    for (std::size_t a = 0; a < n; ++a) {
      for (std::size_t b = 0; b < n; ++b) {
        if (a == b) continue;
        paces.links[a * n + b] =
            std::min(pace(b, a, b, probes_.between), pace(a, a, b, probes_.between));
      }
    }
    if (n > 1) paces.port = port();
    paces.kernel = kernel();
    if (ranks_.size() > 1) paces.signal = signal(paces.kernel);
    return paces;
  }

 private:
  struct Gpu {
    const GpuRank* rank = nullptr;
    engine::Buffer from, to;
  };
  using Queue = std::function<void(std::size_t bytes)>;

  Ops& ops(std::size_t gpu) const { return *gpus_[gpu].rank->ops; }
  // Returns the number that the GPU's source buffer holds.
  static float number(std::size_t gpu) { return float(gpu + 1); }

  // Copies with kernels of GPU `by`.
  void copy(std::size_t by, std::size_t from, std::size_t to, std::size_t at,
            std::size_t bytes) const {
    const std::array<const std::byte*, 1> sources{gpus_[from].from.data() + at};
    const std::array<std::byte*, 1> targets{gpus_[to].to.data() + at};
    ops(by).reduce({.from = sources, .to = targets, .count = bytes / sizeof(float)});
  }

  // Returns the seconds until all queued work is done.
  double timed(const std::function<void()>& queue, std::span<const std::size_t> by) const {
    const auto begin = Clock::now();
    queue();
    for (const std::size_t gpu : by) ops(gpu).record_event(kEnd);
    for (const std::size_t gpu : by) ops(gpu).wait_for_event(kEnd);
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Returns the seconds that `queue` takes for so many bytes, without the time of its kernels as
  // such.
  double seconds(const Queue& queue, std::size_t bytes, std::span<const std::size_t> by) const {
    const auto in_a_row = [&](int times, std::size_t of) {
      return timed(
          [&] {
            for (int i = 0; i < times; ++i) queue(of);
          },
          by);
    };
    in_a_row(1, bytes);
    const double one = std::max(in_a_row(1, bytes), 1e-9);
    const int times = int(std::clamp(probes_.seconds / one, 1.0, double(probes_.most)));
    std::vector<double> few, many;
    for (int i = 0; i < probes_.repetitions; ++i) {
      few.push_back(in_a_row(times, std::min(kSmallBytes, bytes)));
      many.push_back(in_a_row(times, bytes));
    }
    // If other load hides the difference, all of the time counts.
    const double all = engine::median(many), rest = all - engine::median(few);
    return std::max(rest > 0 ? rest : all, 1e-9) / times;
  }

  // Returns the bytes/s from one GPU to another.
  double pace(std::size_t by, std::size_t from, std::size_t to, std::size_t bytes) const {
    const std::array<std::size_t, 1> who{by};
    forget(to, 0, bytes);
    const double taken = seconds([&](std::size_t of) { copy(by, from, to, 0, of); }, bytes, who);
    check(by, from, to, 0, bytes);
    return double(bytes) / taken;
  }

  // Returns the bytes/s of a port while all GPUs read a part from each of the others.
  double port() const {
    const std::size_t n = gpus_.size();
    const std::size_t part =
        std::max(probes_.between / (n - 1) / sizeof(float), std::size_t(1)) * sizeof(float);
    std::vector<std::size_t> all(n);
    for (std::size_t g = 0; g < n; ++g) all[g] = g;
    // In round k each GPU reads from the k-th one after it, so no two read from the same one.
    const auto place = [&](std::size_t k) { return (k - 1) * part; };
    for (std::size_t k = 1; k < n; ++k)
      for (std::size_t g = 0; g < n; ++g) forget(g, place(k), part);
    const double taken = seconds(
        [&](std::size_t of) {
          for (std::size_t k = 1; k < n; ++k)
            for (std::size_t g = 0; g < n; ++g) copy(g, (g + k) % n, g, place(k), of);
        },
        part, all);
    for (std::size_t k = 1; k < n; ++k)
      for (std::size_t g = 0; g < n; ++g) check(g, (g + k) % n, g, place(k), part);
    return double(part) * double(n - 1) / taken;
  }

  double kernel() const {
    const std::array<std::size_t, 1> first{0};
    const auto many = [&](int kernels) {
      std::vector<double> times;
      for (int i = 0; i < probes_.repetitions; ++i)
        times.push_back(timed(
            [&] {
              for (int k = 0; k < kernels; ++k) copy(0, 0, 0, 0, kSmallBytes);
            },
            first));
      return engine::median(times);
    };
    const double one = many(1), all = many(1 + probes_.kernels);
    return std::max((all > one ? all - one : all) / probes_.kernels, 1e-9);
  }

  // Returns the time of a signal, by a ping-pong between the first rank and the next one on another
  // GPU, else on the same GPU.
  double signal(double kernel) const {
    const auto other = std::find_if(ranks_.begin() + 1, ranks_.end(), [&](const GpuRank& rank) {
      return gpus_.size() == 1 || rank.gpu != ranks_[0].gpu;
    });
    Ops &a = *ranks_[0].ops, &b = *other->ops;
    const auto reduce = [&](Ops& by, std::size_t gpu) {
      const std::array<const std::byte*, 1> sources{gpus_[gpu].from.data()};
      const std::array<std::byte*, 1> targets{gpus_[gpu].to.data() +
                                              (&by == &b ? kSmallBytes / 2 : 0)};
      by.reduce({.from = sources, .to = targets, .count = kSmallBytes / 2 / sizeof(float)});
      by.record_event(kTurn);
    };
    std::vector<double> times;
    for (int i = 0; i < probes_.repetitions; ++i) {
      const auto begin = Clock::now();
      for (int k = 0; k < probes_.kernels / 2; ++k) {
        reduce(a, ranks_[0].gpu);
        b.reduce_behind(a, kTurn);
        reduce(b, other->gpu);
        a.reduce_behind(b, kTurn);
      }
      a.record_event(kEnd), b.record_event(kEnd);
      a.wait_for_event(kEnd), b.wait_for_event(kEnd);
      times.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return std::max(0.0, engine::median(times) / double(2 * (probes_.kernels / 2)) - kernel);
  }

  // Returns the elements that are checked: the first, one in the middle, the last.
  static std::array<std::size_t, 3> looked_at(std::size_t bytes) {
    const std::size_t count = bytes / sizeof(float);
    return {0, count / 2, count - 1};
  }
  // Clears what earlier copies left there.
  void forget(std::size_t to, std::size_t at, std::size_t bytes) const {
    const float nothing = 0;
    for (const std::size_t element : looked_at(bytes))
      ops(to).write(&nothing, gpus_[to].to.data() + at + element * sizeof(float), sizeof nothing);
    ops(to).synchronize();
  }

  void check(std::size_t by, std::size_t from, std::size_t to, std::size_t at,
             std::size_t bytes) const {
    for (const std::size_t element : looked_at(bytes)) {
      float found = 0;
      ops(to).read(gpus_[to].to.data() + at + element * sizeof(float), &found, sizeof found);
      if (found == number(from)) continue;
      engine::fail(engine::Code::kDevice,
                   "while GPUs were measured {} copied {} from {} to {}, and there it is {}: their "
                   "memory or the way between them is not sound",
                   gpus_[by].rank->name, number(from), gpus_[from].rank->name, gpus_[to].rank->name,
                   found);
    }
  }

  const GpuProbes& probes_;
  std::span<const GpuRank> ranks_;
  std::vector<Gpu> gpus_;
};

}  // namespace

GpuPaces measure_gpus(std::span<const GpuRank> ranks, const GpuProbes& probes) {
  engine::require(!ranks.empty(), "there is no GPU to be measured");
  return Measurement(ranks, probes).run();
}

}  // namespace lockstep::collectives
