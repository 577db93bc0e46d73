// SPDX-License-Identifier: MIT
#include "tools/bench/flat_replicas.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <mutex>

#include "engine/base/error.h"
#include "engine/nn/graph_spec.h"
#include "engine/nn/loss.h"

namespace lockstep::tools::bench {
namespace {

using collectives::Space;
using strategies::Mirror;

constexpr double kTinyRate = 1e-6;                            // learning rate: weights hardly move
constexpr std::size_t kHandledAtOnce = std::size_t(1) << 20;  // elements per chunk

// This layer has one parameter and computes nothing.
class Flat final : public engine::Layer {
 public:
  explicit Flat(std::size_t elements) : elements_(elements) {}
  std::string describe() const override { return fmt::format("flat {}", elements_); }
  engine::Shape output_shape(std::span<const engine::Shape>) const override { return {1}; }
  std::vector<engine::ParameterSpec> parameters(std::span<const engine::Shape>) const override {
    return {{"weight", {elements_}, engine::constant(1)}};
  }
  bool on_device() const override { return true; }
  void forward(engine::Context&, const engine::ForwardArguments&) const override {}
  void backward(engine::Context&, const engine::BackwardArguments&) const override {}

 private:
  std::size_t elements_;
};

strategies::SynchronousOptions flat_strategy(const FlatOptions& f) {
  const std::size_t replicas = f.devices.size();
  engine::require(replicas >= 1 && replicas <= kMostReplicas,
                  "{} replicas: 1 to {} have sums that are exact in 16 bits", replicas,
                  kMostReplicas);
  engine::require(f.elements >= 1, "a parameter of 0 numbers; it needs at least 1");
  strategies::SynchronousOptions options;
  options.devices = f.devices;
  options.step.dtype = f.dtype;
  options.step.algorithm = replicas > 1 ? f.algorithm : "auto";
  options.deadline = f.deadline;
  // A dynamic loss scale would examine all gradients after the sums.
  options.step.loss_scale = engine::LossScaling{};
  options.log = engine::Log({}, engine::Log::Level::kError);  // each of many instances would warn
  options.step.update = f.update;
  options.step.bucket_bytes = f.bucket_bytes;
  // Checksums of weights are not part of sums and updates.
  options.checksums = false;
  return options;
}

// Returns the gradient of element i on a rank: 0 to 15, so that 16 of them sum to less than 256.
// bfloat16 represents all whole numbers up to 256.
int gradient(std::size_t i, int rank) {
  return int((i + i / 61 + 7 * std::size_t(rank)) % 16);
}

int gradient_sum(std::size_t i, std::size_t replicas) {
  int sum = 0;
  for (std::size_t rank = 0; rank < replicas; ++rank) sum += gradient(i, int(rank));
  return sum;
}

}  // namespace

FlatReplicas::FlatReplicas(const FlatOptions& options)
    : options_(options), strategy_(flat_strategy(options)) {
  engine::GraphSpec graph("flat", {1});
  graph.then("flat", std::make_shared<Flat>(options.elements));
  graph.set_loss(engine::mean_squared_error());
  strategy_.open(graph, options.rule, {.global_batch = options.devices.size()});
  fresh_.resize(options.devices.size());
  const std::size_t width = size_of(options.dtype);
  strategy_.run([&](engine::Replica& r) {
    auto& mirror = static_cast<Mirror&>(r);
    engine::Ops& ops = mirror.kernels();
    engine::Buffer& fresh = fresh_[std::size_t(r.rank)];
    fresh = ops.allocate(options_.elements * width, "gradients as they were");
    std::vector<float> numbers(std::min(kHandledAtOnce, options_.elements));
    for (std::size_t at = 0; at < options_.elements; at += kHandledAtOnce) {
      const std::size_t count = std::min(kHandledAtOnce, options_.elements - at);
      for (std::size_t i = 0; i < count; ++i) numbers[i] = float(gradient(at + i, r.rank));
      ops.load(numbers.data(), {fresh.data() + at * width, {count, 1}, options_.dtype});
    }
    ops.synchronize();
  });
}

void FlatReplicas::write_gradients(Mirror& mirror) {
  engine::Ops& ops = mirror.kernels();
  const engine::Buffer& fresh = fresh_[std::size_t(mirror.rank)];
  ops.copy_bytes(fresh.data(), mirror.space(Space::kGradient), fresh.bytes());
  ops.synchronize();
}

// Returns the seconds of `calls` over all replicas, from their meeting until the last replica is
// done.
double FlatReplicas::timed(const OfReplica& calls) {
  std::mutex mutex;
  auto first = engine::Clock::time_point::max(), last = engine::Clock::time_point::min();
  strategy_.run([&](engine::Replica& r) {
    auto& mirror = static_cast<Mirror&>(r);
    engine::Ops& ops = mirror.kernels();
    write_gradients(mirror);
    strategy_.gather(r, {}, "a meeting before the clock is read");
    const auto begin = engine::Clock::now();
    ops.reduce_behind_kernels();
    calls(mirror);
    ops.go_behind_reductions();
    ops.synchronize();
    const auto end = engine::Clock::now();
    const std::scoped_lock lock(mutex);
    first = std::min(first, begin), last = std::max(last, end);
  });
  return std::chrono::duration<double>(last - first).count();
}

double FlatReplicas::all_reduce(int calls) {
  const strategies::StepDesign& design = strategy_.step();
  engine::invariant(design.stages.buckets.size() == 1 && design.stages.buckets[0].size() == 2,
                    "an all-reduce alone is a step's first stage where its update is separate");
  const int sum = design.stages.buckets[0][0];
  const double seconds = timed([&](Mirror& mirror) {
    for (int i = 0; i < calls; ++i) {
      mirror.executor().start(sum, nullptr);
      mirror.executor().wait(sum, "a benchmark's sum");
    }
  });
  return seconds / calls;
}

double FlatReplicas::all_reduce(int calls, const NcclRanks& nccl) {
  const double seconds = timed([&](Mirror& mirror) {
    for (int i = 0; i < calls; ++i)
      nccl.sum(mirror.rank, mirror.space(Space::kGradient), options_.elements, options_.dtype,
               mirror.kernels().reductions_queue());
  });
  return seconds / calls;
}

double FlatReplicas::update(int calls) {
  const double seconds = timed([&](Mirror& mirror) {
    const engine::Range all{0, mirror.graph.trainable()};
    for (int i = 0; i < calls; ++i) {
      mirror.Replica::state.step = step_ + i;
      mirror.Replica::state.examples = 1;
      mirror.Replica::state.inverse_examples = 1.0 / replicas();
      mirror.Replica::state.rate = kTinyRate;
      strategy_.gradient_ready(mirror, all);
      strategy_.finish(mirror);
      strategy_.before_forward(mirror, all);
    }
  });
  step_ += calls;
  return seconds / calls;
}

// Each call multiplies the sums by the number of replicas, and the first sums are below 256.
int FlatReplicas::most_calls() const {
  constexpr int kExponents = 127 - 8;
  return kExponents / std::max(1, int(std::bit_width(options_.devices.size() - 1)));
}

std::size_t FlatReplicas::wrong_sums() {
  const std::size_t width = size_of(options_.dtype);
  std::atomic<std::size_t> wrong{0};
  strategy_.run([&](engine::Replica& r) {
    auto& mirror = static_cast<Mirror&>(r);
    std::vector<std::byte> sums(std::min(kHandledAtOnce, options_.elements) * width);
    std::size_t here = 0;
    for (std::size_t at = 0; at < options_.elements; at += kHandledAtOnce) {
      const std::size_t count = std::min(kHandledAtOnce, options_.elements - at);
      mirror.kernels().read(mirror.space(Space::kGradient) + at * width, sums.data(),
                            count * width);
      for (std::size_t i = 0; i < count; ++i)
        here += engine::number_at(sums.data(), options_.dtype, i) !=
                gradient_sum(at + i, options_.devices.size());
    }
    wrong += here;
  });
  return wrong;
}

std::uint64_t FlatReplicas::same_weights() {
  std::vector<std::uint64_t> sums(options_.devices.size());
  strategy_.run([&](engine::Replica& r) {
    auto& mirror = static_cast<Mirror&>(r);
    sums[std::size_t(r.rank)] =
        mirror.kernels().checksum(mirror.space(Space::kWeight), fresh_[0].bytes(), 0);
  });
  for (std::size_t rank = 1; rank < sums.size(); ++rank)
    engine::require(sums[rank] == sums[0],
                    "the weights of replica {} are others than those of replica 0", rank);
  return sums[0];
}

// The optimizer state and the weights that the update changes count once. With 16-bit types these
// are the master weights, which are written as well.
double FlatReplicas::fused_bytes() const {
  const double width = double(size_of(options_.dtype));
  const double kept = double(size_of(engine::computed_in(options_.dtype)));
  const double state = 2 * double(options_.rule.slots()) * kept;
  const double weights = engine::has_master(options_.dtype) ? 2 * kept : width;
  return double(options_.elements) * (2 * replicas() * width + state + weights);
}

}  // namespace lockstep::tools::bench
