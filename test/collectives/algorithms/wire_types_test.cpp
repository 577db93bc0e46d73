// SPDX-License-Identifier: MIT
// Sums of float32 that travel between hosts as bfloat16. They take half the bytes, have errors of
// one rounding per hop plus one, and have equal bits on all ranks. Nothing is rounded inside a
// host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>
#include <set>

#include "collectives/algorithms/algorithms.h"
#include "collectives/algorithms/registry.h"
#include "collectives/check/verifier.h"
#include "engine/base/random.h"
#include "test/collectives/job.h"

namespace lockstep::test {
namespace wire_types_test {

using collectives::Action;
using collectives::Algorithm;
using collectives::all_reduce_algorithms;
using collectives::Goal;
using collectives::Lane;
using collectives::Step;
using collectives::Traffic;
using engine::Epilogue;
using engine::kBlock;
using testing::HasSubstr;

Request rounded(const std::vector<int>& host, Range subject) {
  Request request;
  request.name = "sums";
  request.subject = subject;
  request.host = host;
  request.wire = DType::kBFloat16;
  request.chunk_bytes = 8192;
  return request;
}

std::size_t hosts_of(const std::vector<int>& host) {
  return std::set<int>(host.begin(), host.end()).size();
}

// Calls body(algorithm, request) for each algorithm that accepts the hosts, with several sizes and
// layouts.
template <class Body>
void each(Body body, const std::vector<int>& numbers_of_ranks = {1, 2, 3, 4, 5, 7, 8}) {
  for (const Algorithm& algorithm : all_reduce_algorithms())
    for (const std::string& layout : kLayouts)
      for (const int ranks : numbers_of_ranks)
        for (const std::size_t length : {std::size_t(3), 2 * kBlock + 5, 31 * kBlock + 7}) {
          const std::vector<int> host = hosts(layout, ranks);
          if (!algorithm.refusal(host).empty()) continue;
          SCOPED_TRACE(fmt::format("{} of {} ranks, {}, {} elements", algorithm.name, ranks, layout,
                                   length));
          body(algorithm, rounded(host, {kBlock, kBlock + length}));
          if (testing::Test::HasFatalFailure()) return;
        }
}

TEST(WireTypes, LeaveTheSameBitsEverywhereAsTheVerifierSees) {
  each([](const Algorithm& algorithm, Request request) {
    ASSERT_EQ(verify(algorithm.make(request), Goal::kSumEverywhere), "");
    request.update = algorithm.updates;
    if (!request.update) return;
    ASSERT_EQ(verify(algorithm.make(request), Goal::kUpdateEverywhere), "");
  });
}

TEST(WireTypes, ChangeNothingOnOneHost) {
  for (const Algorithm& algorithm : all_reduce_algorithms()) {
    Request request = rounded({0, 0, 0, 0}, {0, 9 * kBlock});
    const std::string with = print(algorithm.make(request));
    request.wire.reset();
    EXPECT_EQ(with, print(algorithm.make(request))) << algorithm.name;
  }
}

Traffic total(const Plan& plan) {
  Traffic sum;
  for (const Traffic& rank : collectives::traffic(plan))
    sum.messages += rank.messages, sum.elements += rank.elements, sum.bytes += rank.bytes;
  return sum;
}

// Sums are rounded in both directions. With an update inside, sums are rounded in one direction,
// and the other carries unrounded weights.
TEST(WireTypes, HalveTheBytesOfSumsAndLeaveThoseOfWeights) {
  each([](const Algorithm& algorithm, Request request) {
    for (const bool update : {false, true}) {
      if (update && !algorithm.updates) continue;
      request.update = update;
      request.wire = DType::kBFloat16;
      const Plan plan = algorithm.make(request);
      std::size_t weights = 0;  // elements sent
      for (const auto& lanes : plan.lanes)
        for (const Lane& lane : lanes)
          for (const Step& step : lane)
            if (step.action == Action::kPostSend && step.from[0].space == Space::kWeight)
              weights += step.count;
      const Traffic with = total(plan);
      request.wire.reset();
      const Traffic without = total(algorithm.make(request));
      ASSERT_EQ(with.elements, without.elements);
      ASSERT_EQ(with.messages, without.messages);
      ASSERT_EQ(without.bytes, without.elements * sizeof(float));
      ASSERT_EQ(with.bytes, without.bytes / 2 + weights * sizeof(float) / 2);
      ASSERT_TRUE(update || weights == 0);
    }
  });
  Request ring = rounded({0, 1, 2, 3}, {0, 64 * kBlock});
  ring.update = true;
  EXPECT_EQ(total(ring_all_reduce(ring)).bytes, 3 * total(ring_all_reduce(ring)).elements);
}

// Returns a random number of either sign, of a random scale from 2^-8 to 2^5.
float input(int rank, std::size_t i) {
  const auto bits = engine::random_bits(5, std::uint64_t(rank), i);
  return std::ldexp(float(engine::uniform(bits[0]) - 0.5), int(bits[1] % 14) - 7);
}

// Holds the addresses of messages.
class Places {
 public:
  void add(const std::byte* place) {
    std::scoped_lock lock(mutex_);
    places_.insert(place);
  }
  std::size_t count() const { return places_.size(); }

 private:
  std::mutex mutex_;
  std::set<const std::byte*> places_;
};

// Counts the bytes that are passed to the transport, and records their addresses.
class Counting : public collectives::Transport {
 public:
  Counting(std::unique_ptr<collectives::Transport> inner, std::atomic<std::size_t>& bytes,
           Places& places)
      : inner_(std::move(inner)), bytes_(bytes), places_(places) {}
  int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) override {
    bytes_ += bytes;
    places_.add(data);
    return inner_->post_send(peer, tag, data, bytes);
  }
  int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) override {
    places_.add(data);
    return inner_->post_receive(peer, tag, data, bytes);
  }
  bool test(int request) override { return inner_->test(request); }
  bool progress() override { return inner_->progress(); }
  void sleep(int microseconds) override { inner_->sleep(microseconds); }

 private:
  std::unique_ptr<collectives::Transport> inner_;
  std::atomic<std::size_t>& bytes_;
  Places& places_;
};

struct Ran {
  std::unique_ptr<Job> job;
  std::size_t bytes = 0;                 // sent
  std::vector<std::size_t> places = {};  // message addresses, after each execution
};

template <class Input>
Ran run(const Algorithm& algorithm, const Request& request, Input numbers, int times = 1) {
  std::atomic<std::size_t> bytes{0};
  Places places;
  JobOptions options;
  options.wrap = [&](int, std::unique_ptr<collectives::Transport> inner) {
    return std::make_unique<Counting>(std::move(inner), bytes, places);
  };
  options.faults.seed = 3;
  Ran ran{std::make_unique<Job>(StepPlan{{algorithm.make(request), {}, false}},
                                request.subject.end + algorithm.scratch(request), options)};
  for (int time = 0; time < times; ++time) {
    for (int rank = 0; rank < ran.job->ranks(); ++rank)
      for (std::size_t i = request.subject.begin; i < request.subject.end; ++i)
        ran.job->values<float>(rank)[i] = numbers(rank, i);
    ran.job->execute({0});
    ran.places.push_back(places.count());
  }
  ran.bytes = bytes;
  return ran;
}

// Each hop between hosts rounds a partial sum, and the whole sum is rounded once. A circle of the
// leaders of H hosts has H roundings; for two hosts that is 2 x 2^-8 of the magnitudes. A ring of
// more ranks than hosts may enter a host twice.
TEST(WireTypes, MakeErrorsOfSoManyRoundingsAndEqualBits) {
  each(
      [](const Algorithm& algorithm, const Request& request) {
        const int n = int(request.host.size());
        const Ran ran = run(algorithm, request, input, 2);
        ASSERT_EQ(ran.bytes, 2 * total(algorithm.make(request)).bytes);
        ASSERT_EQ(ran.places[1], ran.places[0]);  // no new memory after the first execution
        const std::size_t count = hosts_of(request.host);
        const auto depth = [](double parties) { return std::ceil(std::log2(parties)) + 2; };
        const double roundings = count == 1                                 ? 0
                                 : algorithm.name == "halving_doubling"     ? depth(n)
                                 : algorithm.name == "hierarchical_halving" ? depth(double(count))
                                 : algorithm.name == "ring" ? std::min(n - 1, int(count)) + 1
                                                            : double(count);
        for (std::size_t i = request.subject.begin; i < request.subject.end; ++i) {
          double sum = 0, sizes = 0;
          for (int rank = 0; rank < n; ++rank)
            sum += double(input(rank, i)), sizes += std::abs(double(input(rank, i)));
          const float first = ran.job->values<float>(0)[i];
          ASSERT_LE(std::abs(double(first) - sum),
                    sizes * (std::pow(1 + 0x1p-8, roundings) - 1 + n * 0x1p-24))
              << "element " << i;
          for (int rank = 1; rank < n; ++rank)
            ASSERT_EQ(std::bit_cast<std::uint32_t>(ran.job->values<float>(rank)[i]),
                      std::bit_cast<std::uint32_t>(first))
                << "rank " << rank << ", element " << i;
        }
      },
      {2, 3, 5});
}

TEST(WireTypes, LetNaNAndInfinityThrough) {
  each(
      [](const Algorithm& algorithm, const Request& request) {
        const int last = int(request.host.size()) - 1;
        const Ran ran = run(algorithm, request, [&](int rank, std::size_t i) {
          if (rank == last && i % 3 == 0) return std::numeric_limits<float>::quiet_NaN();
          if (rank == last && i % 3 == 1) return -std::numeric_limits<float>::infinity();
          return float(rank);
        });
        for (int rank = 0; rank <= last; ++rank)
          for (std::size_t i = request.subject.begin; i < request.subject.end; ++i) {
            const float sum = ran.job->values<float>(rank)[i];
            ASSERT_EQ(std::isnan(sum), i % 3 == 0) << "rank " << rank << ", element " << i;
            ASSERT_EQ(sum == -std::numeric_limits<float>::infinity(), i % 3 == 1);
          }
      },
      {3, 5});
}

// Sums inside a host are not rounded: 256.5 - 256 is 0.5, but 0 if 256.5 is rounded first.
TEST(WireTypes, DoNotRoundWhatIsAddedInsideAHost) {
  for (const std::string_view name :
       {"hierarchical", "hierarchical_halving", "leader_hierarchical"}) {
    const Algorithm& algorithm = collectives::find_algorithm(name);
    const Request request = rounded({0, 0, 1, 1}, {0, 9 * kBlock});
    const Ran ran = run(algorithm, request, [](int rank, std::size_t) {
      constexpr float kNumbers[] = {256.5f, -256, 0.125f, 0.125f};
      return kNumbers[rank];
    });
    for (const std::size_t i : {std::size_t(0), 5 * kBlock})
      EXPECT_EQ(ran.job->values<float>(3)[i], 0.75f) << name;
  }
}

// A broken plan, and the verifier's message about it.
struct Broken {
  std::string says;
  std::function<Plan()> plan;
};

template <class Change>
Plan changed(std::string_view algorithm, std::size_t length, Change change) {
  Plan plan =
      collectives::find_algorithm(algorithm).make(rounded({0, 1, 2, 3}, {0, length * kBlock}));
  for (auto& lanes : plan.lanes)
    for (Lane& lane : lanes)
      for (Step& step : lane) change(step);
  return plan;
}

// Messages are converted in parts too, so that small sums do not wait behind a large one.
TEST(WireTypes, NoCallChangesMoreBlocksThanItsBudget) {
  constexpr std::size_t kElements = 64 * kBlock;
  Request request = rounded({0, 1}, {0, kElements});
  request.chunk_bytes = kElements * sizeof(float);
  const Algorithm& ring = collectives::find_algorithm("ring");
  Job job({{.plan = ring.make(request), .after = {}}}, kElements);
  for (int rank = 0; rank < 2; ++rank)
    std::fill_n(job.values<float>(rank), kElements, float(rank + 1));
  for (int rank = 0; rank < 2; ++rank) job.executor(rank).start(0, nullptr);
  std::vector<float> before(kElements);
  int calls = 0;
  for (; !(job.executor(0).done(0) && job.executor(1).done(0)); ++calls) {
    ASSERT_LT(calls, 100'000);
    const int rank = calls % 2;
    const float* const values = job.values<float>(rank);
    std::copy_n(values, kElements, before.begin());
    job.executor(rank).progress(1);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < kElements; ++i) changed += values[i] != before[i];
    ASSERT_LE(changed, kBlock) << "call " << calls;
  }
  for (int rank = 0; rank < 2; ++rank)
    for (std::size_t i = 0; i < kElements; ++i) ASSERT_EQ(job.values<float>(rank)[i], 3);
}

TEST(WireTypes, ThatLeaveMirrorsUnequalOrDoNotFitAreFound) {
  const auto forget = [](Step& step) {
    if (step.epilogue == Epilogue::kRound) step.epilogue = Epilogue::kNone;
  };
  int seen = 0;
  const std::vector<Broken> all{
      {"its bits are not rank 0's", [&] { return changed("ring", 8, forget); }},
      {"its bits are not rank 0's", [&] { return changed("halving_doubling", 40, forget); }},
      // Two partners each add their unrounded part to the rounded part of the other.
      {"its bits are not rank 0's",
       [&] {
         return changed("halving_doubling", 1, [&](Step& step) {
           if (step.from.size() == 1) forget(step);
         });
       }},
      {"a message of another type",
       [&] {
         return changed("ring", 8, [&](Step& step) {
           if (step.action == Action::kPostReceive && seen++ == 0) step.wire.reset();
         });
       }},
      {"a message of another type that is not float32 as bfloat16",
       [&] {
         return changed("ring", 8, [](Step& step) {
           if (step.wire) step.wire = DType::kFloat16;
         });
       }},
      {"numbers rounded that are not float32",
       [&] {
         Plan plan = changed("ring", 8, [](Step& step) { step.wire.reset(); });
         plan.dtype = DType::kFloat64;
         return plan;
       }},
      {"a reduction in the type of a message", [&] {
         return changed("ring", 8, [](Step& step) {
           if (step.action == Action::kReduce) step.wire = DType::kBFloat16;
         });
       }}};
  for (const Broken& broken : all)
    EXPECT_THAT(verify(broken.plan(), Goal::kSumEverywhere), HasSubstr(broken.says));
}

TEST(WireTypes, AreOfPlainSumsOfFloat32Alone) {
  const std::vector<std::function<void(Request&)>> wrong{
      [](Request& r) { r.dtype = DType::kFloat64; }, [](Request& r) { r.mean = true; },
      [](Request& r) { r.wire = DType::kFloat16; }, [](Request& r) { r.op = ReduceOp::kMax; }};
  for (const auto& change : wrong) {
    Request request = rounded({0, 1}, {0, kBlock});
    change(request);
    try {
      ring_all_reduce(request);
      ADD_FAILURE() << "was taken";
    } catch (const engine::Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("plain sums of float32 can travel as bfloat16"));
    }
  }
}

}  // namespace wire_types_test
}  // namespace lockstep::test
