// SPDX-License-Identifier: MIT
// If ranks of the lower layer do not make the same calls in the same order, all of them get an
// error at that call. Nobody hangs, and no mismatched numbers are summed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <exception>
#include <functional>

#include "collectives/communicator/buckets.h"
#include "collectives/communicator/communicator.h"
#include "engine/base/error.h"
#include "strategies/session/ranks.h"

namespace lockstep::test {
namespace differing_calls_test {

using namespace std::chrono_literals;
using collectives::Buckets;
using collectives::Communicator;
using collectives::Gradient;
using collectives::Reduce;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;

// Returns what each rank is told when all call `body`.
std::vector<std::string> told(int ranks, const std::function<void(Communicator&)>& body,
                              bool reproducible = false) {
  std::vector<std::string> texts{std::size_t(ranks)};
  strategies::Session session(0, nullptr);
  const auto each = [&](Communicator& c) {
    try {
      body(c);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid) << error.what();
      texts[std::size_t(c.rank())] = error.what();
    }
    std::vector<float> one{1};  // the communicator stays usable
    c.all_reduce(std::span(one));
    EXPECT_EQ(one[0], float(ranks));
  };
  strategies::run_ranks(session, ranks, each, {.deadline = 20s, .reproducible = reproducible});
  return texts;
}

TEST(Communicator, CallsThatDifferAreAnErrorAtTheCallOnAllRanks) {
  std::vector<float> floats(20);
  const auto counts = told(3, [](Communicator& c) {
    std::vector<float> values(c.rank() == 1 ? 7 : 10);
    c.all_reduce(std::span(values));
  });
  for (const std::string& text : counts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for all_reduce of 10 float32 (sum)"),
                            HasSubstr("rank 1 for all_reduce of 7 float32 (sum)")));
  const auto types = told(2, [](Communicator& c) {
    std::vector<float> values(4);
    std::vector<double> wide(4);
    c.rank() == 0 ? c.all_reduce(std::span(values)) : c.all_reduce(std::span(wide));
  });
  for (const std::string& text : types) EXPECT_THAT(text, HasSubstr("4 float64"));
  const auto operations = told(2, [](Communicator& c) {
    std::vector<float> values(4);
    c.all_reduce(std::span(values), c.rank() == 0 ? Reduce::kSum : Reduce::kMean);
  });
  for (const std::string& text : operations) EXPECT_THAT(text, HasSubstr("(mean)"));
  const auto calls = told(2, [](Communicator& c) {
    std::vector<float> values(4);
    c.rank() == 0 ? c.barrier() : c.broadcast(std::span(values), 1);
  });
  for (const std::string& text : calls)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for barrier"), HasSubstr("from rank 1")));
  const auto memory = told(2, [](Communicator& c) {
    const std::span<float> allocated = c.allocate<float>(4);
    std::vector<float> own(4);
    c.all_reduce(c.rank() == 0 ? allocated : std::span(own));
  });
  for (const std::string& text : memory) EXPECT_THAT(text, HasSubstr("in allocated memory"));
  const auto roots = told(2, [](Communicator& c) {
    std::vector<float> values(4);
    c.broadcast(std::span(values), 2);
  });
  for (const std::string& text : roots) EXPECT_THAT(text, HasSubstr("there are ranks 0 to 1"));
}

// The same calls with the same lengths in another order are told apart if the memory is the
// communicator's own or the call differs.
TEST(Communicator, AnotherOrderOfCallsIsAnErrorAtTheFirstOfThem) {
  const auto memory = told(2, [](Communicator& c) {
    const std::span<float> first = c.allocate<float>(4), second = c.allocate<float>(4);
    c.all_reduce(c.rank() == 0 ? first : second);
    c.all_reduce(c.rank() == 0 ? second : first);
  });
  for (const std::string& text : memory)
    EXPECT_THAT(
        text, AllOf(HasSubstr("rank 0 for all_reduce of 4 float32 (sum, in allocated memory 1)"),
                    HasSubstr("rank 1 for all_reduce of 4 float32 (sum, in allocated memory 2)")));
  const auto calls = told(3, [](Communicator& c) {
    std::vector<double> values(8);
    if (c.rank() != 2) c.barrier();
    c.all_reduce(std::span(values), Reduce::kMean);
    if (c.rank() == 2) c.barrier();
  });
  for (const std::string& text : calls)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for barrier"),
                            HasSubstr("rank 2 for all_reduce of 8 float64 (mean)")));
}

// Expects that all ranks that make buckets for these gradients are told `why`.
void expect_refused(const std::vector<std::vector<Gradient<float>>>& of_rank,
                    const std::string& why) {
  const auto texts = told(int(of_rank.size()), [&](Communicator& c) {
    Buckets<float> buckets(c, of_rank[std::size_t(c.rank())]);
  });
  for (const std::string& text : texts) EXPECT_THAT(text, HasSubstr(why));
}

TEST(Buckets, ForDifferentGradientsAreAnErrorOnAllRanks) {
  expect_refused({{{nullptr, 5}}, {{nullptr, 5}, {nullptr, 1}}},
                 "rank 0 for buckets for 1 gradient of float32 (mean), rank 1 for buckets for 2 "
                 "gradients of float32 (mean)");
  expect_refused({{{nullptr, 5}}, {{nullptr, 6}}},
                 "buckets differ in gradient 0: 5 elements on rank 0, 6 on rank 1;");
  // The gradients have as many elements in all, in the same buckets.
  expect_refused({{{nullptr, 4096}, {nullptr, 1}}, {{nullptr, 1}, {nullptr, 4096}}},
                 "buckets differ in gradient 0: 4096 elements on rank 0, 1 on rank 1;");
  const std::vector<Gradient<float>> most{{nullptr, 1}, {nullptr, 2}, {nullptr, 3}, {nullptr, 0}};
  expect_refused({most, most, {most[0], most[2], most[1], most[3]}},
                 "buckets differ in gradient 1: 2 elements on rank 0, 3 on rank 2;");
}

TEST(Buckets, WithOtherOptionsAreAnErrorOnAllRanks) {
  const auto bytes = told(2, [](Communicator& c) {
    Buckets<float>(c, {{nullptr, 5}}, {.bytes = c.rank() == 0 ? 4096u : 8192u});
  });
  for (const std::string& text : bytes)
    EXPECT_THAT(text, HasSubstr("how many bytes one holds: 4096 bytes on rank 0, 8192 on rank 1"));
  const auto operations = told(2, [](Communicator& c) {
    Buckets<float>(c, {{nullptr, 5}}, {.operation = c.rank() == 0 ? Reduce::kSum : Reduce::kMean});
  });
  for (const std::string& text : operations)
    EXPECT_THAT(text, AllOf(HasSubstr("float32 (sum)"), HasSubstr("float32 (mean)")));
  const auto none = told(2, [](Communicator& c) { Buckets<float>(c, {}); });
  for (const std::string& text : none) EXPECT_THAT(text, HasSubstr("at least one gradient"));
}

TEST(Buckets, ThatAreMadeWhereAnotherRankMakesAnotherCallAreAnErrorAtTheCall) {
  const auto sums = told(3, [](Communicator& c) {
    std::vector<float> values(4);
    if (c.rank() == 1) return c.all_reduce(std::span(values));
    Buckets<float>(c, {{nullptr, 4}});
  });
  for (const std::string& text : sums)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for buckets for 1 gradient of float32 (mean)"),
                            HasSubstr("rank 1 for all_reduce of 4 float32 (sum)")));
  const auto memory = told(2, [](Communicator& c) {
    if (c.rank() == 0) {
      c.allocate<float>(4);
    } else {
      Buckets<float>(c, {{nullptr, 4}});
    }
  });
  for (const std::string& text : memory)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for allocate"), HasSubstr("rank 1 for buckets")));
}

// Reproducible sums use the communicator's memory, which all buckets share. After the error each
// rank waits again, in the right order.
TEST(Buckets, OfAReproducibleCommunicatorThatAreWaitedForInAnotherOrderAreAnErrorOnAllRanks) {
  const auto texts = told(
      2,
      [](Communicator& c) {
        Buckets<float> a(c, {{nullptr, 3}}, {.operation = Reduce::kSum});
        Buckets<float> b(c, {{nullptr, 3}}, {.operation = Reduce::kSum});
        std::fill_n(a.gradient(0).data(), 3, 1.0f);
        std::fill_n(b.gradient(0).data(), 3, 10.0f);
        a.ready(0);
        b.ready(0);
        std::exception_ptr error;
        try {
          (c.rank() == 0 ? a : b).wait();
        } catch (const Error&) {
          error = std::current_exception();
        }
        if (error) {
          a.wait();
          b.wait();
        }
        EXPECT_EQ(a.gradient(0)[2], 2.0f);
        EXPECT_EQ(b.gradient(0)[2], 20.0f);
        if (error) std::rethrow_exception(error);
      },
      true);
  for (const std::string& text : texts)
    EXPECT_THAT(text, AllOf(HasSubstr("rank 0 for bucket 0 of buckets 1, of 3 float32"),
                            HasSubstr("rank 1 for bucket 0 of buckets 2, of 3 float32")));
}

}  // namespace differing_calls_test
}  // namespace lockstep::test
