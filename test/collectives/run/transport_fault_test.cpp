// SPDX-License-Identifier: MIT
// Each algorithm is run with messages that are late, fail or stop, at every message. Bits do not
// change. If a rank's end fails, every rank is told in time: the collective, its bytes, and which
// ranks arrived and which did not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/algorithms/registry.h"
#include "engine/base/quantity.h"
#include "test/collectives/faulty_transport.h"
#include "test/collectives/job.h"
#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::test {
namespace transport_fault_test {

using collectives::Transport;
using engine::Code;
using engine::kBlock;
using std::chrono::milliseconds;
using testing::HasSubstr;

// kSmall is sent whole in one message, if an algorithm can do that. kLarge is sent in slices, there
// and back, in more than one segment.
enum class Size { kSmall, kLarge };
constexpr std::size_t kSmallLength = 3 * kBlock + 5, kLargeLength = 9 * kBlock + 5;
constexpr std::size_t kElements = 4 * kLargeLength;  // gradients, or scratch
constexpr int kTries = 5;
constexpr auto kFar = std::chrono::minutes(10);  // longer than a test may take

struct Case {
  std::string algorithm, layout;
  int ranks;
  Size size;
  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.algorithm << " " << c.layout << " " << c.ranks
         << (c.size == Size::kSmall ? " small" : " large");
  }
};

Request request_of(const std::string& layout, int ranks, Size size) {
  Request request;
  request.name = "bucket 7 (dense.weight): sum";
  request.subject = {0, size == Size::kSmall ? kSmallLength : kLargeLength};
  request.host = hosts(layout, ranks);
  if (size == Size::kLarge) request.chunk_bytes = kBlock * sizeof(float);
  return request;
}

Plan plan_of(const Case& c) {
  return collectives::find_algorithm(c.algorithm).make(request_of(c.layout, c.ranks, c.size));
}

// Returns the posts of a rank in one execution.
int posts(const Plan& plan, int rank) {
  int count = 0;
  for (const auto& lane : plan.lanes[std::size_t(rank)])
    for (const auto& step : lane) count += step.peer >= 0;
  return count;
}

// Returns a rank that posts messages; not all ranks of a host may.
int talker(const Plan& plan) {
  int rank = plan.ranks() - 1;
  while (posts(plan, rank) == 0) --rank;
  return rank;
}

using Values = std::vector<float>;

struct Outcome {
  std::size_t length = 0;                  // elements of the sums
  std::vector<std::exception_ptr> errors;  // one per rank; null: none
  std::vector<Values> first;               // first sums of each rank that completed
};

// Executes the plan twice on all ranks. A rank whose share ended before another rank's end failed
// is told in the second execution.
Outcome twice(const Plan& plan, JobOptions options) {
  Job job({{plan, {}, false}}, kElements, std::move(options));
  const std::size_t length = plan.subject.size();
  for (int rank = 0; rank < job.ranks(); ++rank)
    for (std::size_t i = 0; i < length; ++i)
      job.values<float>(rank)[i] = 1.0f / float(i + 1 + std::size_t(rank) * 7);
  Outcome outcome{.length = length, .errors = {}, .first = {}};
  outcome.first.resize(std::size_t(job.ranks()));
  outcome.errors = job.run([&](int rank) {
    run_and_tell(job.executor(rank), {0});
    const float* values = job.values<float>(rank);
    outcome.first[std::size_t(rank)].assign(values, values + length);
    run_and_tell(job.executor(rank), {0});
  });
  return outcome;
}

JobOptions with_faults(int at, TransportFaults faults, milliseconds deadline = kFar) {
  JobOptions options;
  options.executor.deadline = deadline;
  options.executor.answer = milliseconds(20);  // short: there are many cases
  options.wrap = [at, faults](int rank, std::unique_ptr<Transport> inner) {
    if (at >= 0 && rank != at) return inner;
    return std::unique_ptr<Transport>(
        std::make_unique<FaultyTransport>(rank, std::move(inner), faults));
  };
  return options;
}

bool names(const std::exception_ptr& error, int rank) {
  return text(error).starts_with(fmt::format("rank {} is missing: ", rank));
}

// Expects that every rank is told the error. If `lost` is a rank, only that rank is missing.
void expect_all_told(const Outcome& outcome, const Outcome& still, const std::string& where,
                     int lost = -1) {
  for (std::size_t rank = 0; rank < outcome.errors.size(); ++rank) {
    const std::string told = text(outcome.errors[rank]);
    ASSERT_TRUE(outcome.errors[rank]) << where << ": rank " << rank << " was told nothing";
    EXPECT_THAT(told, HasSubstr("bucket 7 (dense.weight): sum")) << where;
    EXPECT_THAT(told, HasSubstr(engine::bytes_text(double(outcome.length * sizeof(float)))))
        << where;
    EXPECT_THAT(told, HasSubstr("; arrived: ")) << where;
    EXPECT_THAT(told, HasSubstr(" missing: ")) << where;
    if (lost >= 0) {
      EXPECT_THAT(told, testing::EndsWith(fmt::format("; missing: rank {}", lost))) << where;
    }
    if (!outcome.first[rank].empty()) {
      EXPECT_EQ(outcome.first[rank], still.first[rank]) << where << ": rank " << rank;
    }
  }
}

class TransportFaultsOf : public testing::TestWithParam<Case> {};

TEST_P(TransportFaultsOf, LateAndOvertakingMessagesChangeNoBits) {
  const Plan plan = plan_of(GetParam());
  const Outcome still = twice(plan, {});
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const Outcome late = twice(plan, with_faults(-1, {.seed = seed, .most_held_polls = 7}));
    for (const auto& error : late.errors) ASSERT_FALSE(error) << text(error);
    ASSERT_EQ(late.first, still.first) << seed;
  }
}

TEST_P(TransportFaultsOf, AnEndThatFailsAtAnyMessageEndsAllRanks) {
  const Plan plan = plan_of(GetParam());
  const Outcome still = twice(plan, {});
  for (int rank = 0; rank < plan.ranks(); ++rank)
    for (int k = 0; k < posts(plan, rank); ++k)
      expect_all_told(twice(plan, with_faults(rank, {.fail_at = k})), still,
                      fmt::format("rank {} fails at message {}", rank, k), rank);
}

TEST_P(TransportFaultsOf, AnEndThatGoesSilentAtAnyMessageEndsAllRanksAtTheDeadline) {
  const Plan plan = plan_of(GetParam());
  const Outcome still = twice(plan, {});
  const int rank = talker(plan);
  for (int k = 0; k < posts(plan, rank); ++k) {
    const auto silent = [&](int tries) {
      JobOptions options = with_faults(rank, {.silent_at = k}, milliseconds(25));
      options.executor.answer *= 1 << tries;
      return twice(plan, std::move(options));
    };
    Outcome outcome = silent(0);
    const std::string where = fmt::format("rank {} is silent from message {} on", rank, k);
    expect_all_told(outcome, still, where);
    // The silent rank misses the others itself, and a rank of its host is told so. All others name
    // it. A rank that does not run for the time of an answer is silent too; then the job is
    // repeated with twice the time.
    if (GetParam().layout == "apart") {
      const auto named = [&](int other) {
        return other == rank || names(outcome.errors[std::size_t(other)], rank);
      };
      const auto all_name_it = [&] {
        for (int other = 0; other < plan.ranks(); ++other)
          if (!named(other)) return false;
        return true;
      };
      for (int tries = 1; !all_name_it() && tries < kTries; ++tries) outcome = silent(tries);
      for (int other = 0; other < plan.ranks(); ++other)
        EXPECT_TRUE(named(other)) << where << ", rank " << other << ": "
                                  << text(outcome.errors[std::size_t(other)]);
    }
    // A rank waits until its own deadline, or shorter if another rank asked it at that rank's
    // deadline.
    for (const auto& error : outcome.errors)
      EXPECT_THAT(text(error), testing::ContainsRegex(" waited ([0-9]|1[0-9]|2[0-5]) ms"));
  }
}

// The same holds over sockets: the peers of a failed end are told over the wire.
TEST_P(TransportFaultsOf, AnEndThatFailsAtAnyMessageEndsAllRanksOverSocketsToo) {
  const Plan plan = plan_of(GetParam());
  const Outcome still = twice(plan, {});
  const int rank = talker(plan);
  for (int k = 0; k < posts(plan, rank); ++k) {
    JobOptions options = with_faults(rank, {.fail_at = k});
    options.connect = [](int ranks) { return collectives::connect_all(ranks); };
    expect_all_told(twice(plan, std::move(options)), still,
                    fmt::format("rank {} fails at message {}, sockets", rank, k), rank);
  }
}

// Returns every algorithm with each layout that it accepts and each size.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const collectives::Algorithm& algorithm : collectives::all_reduce_algorithms())
    for (const auto& [layout, ranks] : {std::pair("apart", 3), std::pair("equal", 4)})
      for (const Size size : {Size::kSmall, Size::kLarge}) {
        const Request request = request_of(layout, ranks, size);
        if (!algorithm.refusal(request.host).empty()) continue;
        engine::invariant(algorithm.scratch(request) <= kElements, "more scratch than there is");
        all.push_back({std::string(algorithm.name), layout, ranks, size});
      }
  return all;
}

std::string named(const Case& c) {
  std::string text = fmt::format("{}_{}_{}_{}", c.algorithm, c.layout, c.ranks,
                                 c.size == Size::kSmall ? "small" : "large");
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

// A large sum has more posts than a small one, for the way back and for more segments.
TEST(TransportFaults, TheLargeSizeHasAWayBackAndSegments) {
  for (const Case& c : cases())
    if (c.size == Size::kLarge) {
      const Plan large = plan_of(c);
      Case other = c;
      other.size = Size::kSmall;
      EXPECT_GT(posts(large, talker(large)), posts(plan_of(other), talker(large)))
          << c.algorithm << " " << c.layout;
    }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, TransportFaultsOf, testing::ValuesIn(cases()),
                         [](const auto& one) { return named(one.param); });

}  // namespace transport_fault_test
}  // namespace lockstep::test
