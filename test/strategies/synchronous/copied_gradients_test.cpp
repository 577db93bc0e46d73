// SPDX-License-Identifier: MIT
// No gradient in an arena is copied. Each rank that adds a gradient reads it once where its layer
// wrote it. It stores new weights, or a sum in the gradients' own place. The tests count this in
// the plan of a step, and again in what its kernels really move.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/reference/reference_device.h"
#include "engine/train/staging.h"
#include "test/strategies/observed_device.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace copied_gradients_test {

using collectives::Action;
using collectives::Operand;
using collectives::Space;
using collectives::Step;
using engine::Epilogue;

constexpr std::int64_t kSteps = 3;

// Counts the elements, over all ranks and buckets, moved by steps that have a gradient as a source.
struct Moved {
  std::size_t read = 0;    // gradients read
  std::size_t copied = 0;  // stored unchanged in another place
  std::size_t aside = 0;   // stored neither as gradients nor as weights
  std::size_t sent = 0;    // to other hosts
};

void add(Moved& moved, const Step& step) {
  const auto is_gradient = [](const Operand& o) { return o.space == Space::kGradient; };
  const std::size_t sources =
      std::size_t(std::count_if(step.from.begin(), step.from.end(), is_gradient));
  if (sources == 0) return;
  if (step.action == Action::kPostSend) moved.sent += step.count;
  if (step.action != Action::kReduce) return;
  const bool update = step.epilogue == Epilogue::kUpdate;
  moved.read += sources * step.count;
  for (const Operand& to : step.to) {
    if (step.from.size() == 1 && !update && to != step.from[0]) moved.copied += step.count;
    if (!is_gradient(to) && !(update && to.space == Space::kWeight)) moved.aside += step.count;
  }
}

// Returns what a reduction reads and stores, as "update: r0.gradient r1.gradient -> r0.weight
// r1.weight". Memory of ranks in other processes is "peer", since only their executor knows where
// it is mapped.
using Label = std::function<std::string(std::size_t operand, bool to)>;
std::string kind_of(Epilogue epilogue, std::size_t from, std::size_t to, const Label& label) {
  std::string text = epilogue == Epilogue::kUpdate    ? "update:"
                     : epilogue == Epilogue::kSquares ? "squares:"
                                                      : "sum:";
  for (std::size_t i = 0; i < from; ++i) text += " " + label(i, false);
  text += " ->";
  for (std::size_t i = 0; i < to; ++i) text += " " + label(i, true);
  return text;
}

std::string name_of(int rank, Space space) {
  return fmt::format("r{}.{}", rank, collectives::name(space));
}

using Kinds = std::map<std::string, std::size_t>;  // elements of each kind

// Counts the elements that the kernels of all ranks move.
class Counter {
 public:
  void know(const strategies::Mirror& mirror, const strategies::ArenaLayout& layout) {
    std::scoped_lock lock(mutex_);
    for (int space = 0; space < collectives::kSpaces; ++space) {
      const std::byte* begin = mirror.space(Space(space));
      places_[begin] = name_of(mirror.rank, Space(space));
      if (space + 1 == collectives::kSpaces)
        places_[begin + layout.bytes - layout.offset[space]] = "peer";  // memory behind a block
    }
    counting_ = true;
  }
  void count(const engine::ReduceArguments& a) {
    std::scoped_lock lock(mutex_);
    if (!counting_) return;
    kinds_[kind_of(a.epilogue, a.from.size(), a.to.size(), [&](std::size_t i, bool to) {
      const std::byte* at = to ? a.to[i] : a.from[i];
      const auto behind = places_.upper_bound(at);
      return behind == places_.begin() ? "peer" : std::prev(behind)->second;
    })] += a.count;
  }
  Kinds kinds() {
    std::scoped_lock lock(mutex_);
    return kinds_;
  }

 private:
  std::mutex mutex_;
  bool counting_ = false;
  std::map<const std::byte*, std::string> places_;  // by first address
  Kinds kinds_;
};

struct Way {
  std::string name;
  int replicas;           // per process
  std::vector<int> host;  // host of each process; empty: Mirrored
  std::string algorithm = "auto", update = "auto";
  friend void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }
  int ranks() const { return replicas * std::max(1, int(host.size())); }
};

void train_by_hand(strategies::Synchronous& strategy, const Job& job, Counter& counter) {
  strategy.open(small_graph(job), job.optimizer.rule, {11, 1, 1, {}});
  strategy.run([&](engine::Replica& r) {
    const auto& mirror = static_cast<const strategies::Mirror&>(r);
    counter.know(mirror, strategies::arena_layout(r.graph, strategy.step()));
  });
  const Table data = small_data();
  strategy.assign({39, 11, 0, kSteps, {}, true});
  strategy.run([&](engine::Replica& r) {
    engine::Pipeline pipeline(data, {.seed = 1, .in_place = true});
    while (const auto work = strategy.next(r)) {
      pipeline.request(work->epoch, work->local_batch);
      engine::stage(r, pipeline.take(), work->step, work->global_batch, 0.01);
      r.graph.forward(*r.context, [&](engine::Range x) { strategy.before_forward(r, x); });
      r.graph.evaluate_loss(*r.context, true);
      r.graph.backward(*r.context, false, [&](engine::Range x) { strategy.gradient_ready(r, x); });
      strategy.finish(r);
    }
  });
}

// Trains the job and returns the step as all processes planned it.
strategies::StepDesign trained(const Way& way, const Job& job, Counter& counter) {
  ObservedDevice device(engine::reference_device(),
                        [&](const engine::ReduceArguments& a) { counter.count(a); });
  auto options = replicas(way.replicas);
  options.devices.assign(std::size_t(way.replicas), &device);
  options.step.algorithm = way.algorithm;
  options.step.update = strategies::update_of(way.update);
  if (way.host.empty()) {
    strategies::Mirrored strategy(options);
    train_by_hand(strategy, job, counter);
    return strategy.step();
  }
  strategies::StepDesign step;
  const auto bootstraps = collectives::in_memory_bootstrap(way.host, std::chrono::seconds(20));
  std::vector<std::jthread> processes;
  for (const auto& bootstrap : bootstraps)
    processes.emplace_back([&, b = bootstrap.get()] {
      strategies::CollectiveAllReduce strategy(options, *b);
      train_by_hand(strategy, job, counter);
      if (b->process() == 0) step = strategy.step();
      b->finish();
    });
  processes.clear();
  return step;
}

// Returns all reductions of the buckets in kSteps steps, according to the plan.
Kinds planned(const strategies::StepDesign& design, const Way& way) {
  Kinds kinds;
  for (const auto& stages : design.stages.buckets)
    for (const int stage : stages) {
      const collectives::Plan& plan = design.plan[std::size_t(stage)].plan;
      for (int rank = 0; rank < plan.ranks(); ++rank)
        for (const collectives::Lane& lane : plan.lanes[std::size_t(rank)])
          for (const Step& step : lane) {
            if (step.action != Action::kReduce || step.count == 0) continue;
            const auto label = [&](std::size_t i, bool to) {
              const Operand& operand = to ? step.to[i] : step.from[i];
              const bool mine = operand.rank / way.replicas == rank / way.replicas;
              return mine ? name_of(operand.rank, operand.space) : "peer";
            };
            kinds[kind_of(step.epilogue, step.from.size(), step.to.size(), label)] +=
                step.count * kSteps;
          }
    }
  return kinds;
}

Moved moved_by(const strategies::StepDesign& design) {
  Moved moved;
  for (const auto& stages : design.stages.buckets)
    for (const int stage : stages)
      for (const auto& lanes : design.plan[std::size_t(stage)].plan.lanes)
        for (const collectives::Lane& lane : lanes)
          for (const Step& step : lane) add(moved, step);
  return moved;
}

std::vector<Way> ways() {
  std::vector<Way> list;
  for (const int n : {1, 2, 3, 4}) {
    const std::string count = std::to_string(n);
    const std::vector<int> one_host(std::size_t(n), 0);
    std::vector<int> apart(std::size_t(n), 0);
    std::iota(apart.begin(), apart.end(), 0);
    list.push_back({"mirrored " + count, n, {}, "direct", "fused"});
    list.push_back({"mirrored, update separate " + count, n, {}, "direct", "separate"});
    list.push_back({"processes " + count, 1, one_host, "direct", "fused"});
    list.push_back({"processes, update separate " + count, 1, one_host, "direct", "separate"});
    list.push_back({"hosts " + count, 1, apart, "ring"});
    list.push_back({"hosts, update separate " + count, 1, apart, "ring", "separate"});
  }
  list.push_back({"2 processes of 2", 2, {0, 0}, "direct", "fused"});
  return list;
}

class CopiedGradients : public testing::TestWithParam<Way> {};

TEST_P(CopiedGradients, AreNoneAndKernelsMoveWhatThePlanSays) {
  const Way& way = GetParam();
  namespace optim = engine::optim;
  for (const optim::Optimizer& optimizer :
       {optim::adam({.rate = 0.003}), optim::sgd({.rate = 0.02, .clip_norm = 0.05})}) {
    Job job;
    job.optimizer = optimizer;
    Counter counter;
    const strategies::StepDesign design = trained(way, job, counter);
    const std::size_t n = std::size_t(way.ranks()), size = design.buckets.back().end;
    const bool ring = way.algorithm == "ring", norm = optimizer.rule.clip_norm > 0;
    const bool fused = way.update != "separate" && !(ring && norm);
    ASSERT_EQ(design.algorithm, ring ? "ring" : "direct");
    ASSERT_EQ(design.update, fused ? strategies::Update::kFused : strategies::Update::kSeparate);

    const Moved moved = moved_by(design);
    EXPECT_EQ(moved.copied, 0u);
    EXPECT_EQ(moved.aside, 0u);
    // With a fused update, updated weights travel around the ring instead of sums.
    EXPECT_EQ(moved.sent, ring ? (fused ? 1 : 2) * (n - 1) * size : 0);
    // Sums read each gradient once, except for those that a ring sends first. Separate norms and
    // updates read the results: each rank all of them, or its slice.
    const std::size_t sums = ring && n > 1 ? (n - 1) * size : fused || n > 1 ? n * size : 0;
    const std::size_t later = fused ? (norm ? size : 0) : (norm ? 2 : 1) * n * size;
    EXPECT_EQ(moved.read, sums + later);

    EXPECT_EQ(counter.kinds(), planned(design, way));
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, CopiedGradients, testing::ValuesIn(ways()));

// The count detects a plan that copies a bucket into scratch memory first.
TEST(CopyCount, SeesWhatIsBroughtIntoScratchMemoryFirst) {
  Step step;
  step.count = 100;
  step.from = {{0, Space::kGradient, 0}};
  step.to = {{0, Space::kScratch, 0}};
  Moved moved;
  add(moved, step);
  EXPECT_EQ(moved.copied, 100u);
  EXPECT_EQ(moved.aside, 100u);
  step.to = {{0, Space::kGradient, 0}, {1, Space::kGradient, 0}};
  add(moved, step);
  EXPECT_EQ(moved.copied, 200u);
  EXPECT_EQ(moved.aside, 100u);
}

}  // namespace copied_gradients_test
}  // namespace lockstep::test
