// SPDX-License-Identifier: MIT
// Processes exchange values before anything else connects them. Threads play the processes.
#include "collectives/bootstrap/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "collectives/bootstrap/outcome.h"
#include "engine/base/error.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace bootstrap_test {

using engine::Code;
using std::chrono::milliseconds;

using Views = std::vector<std::unique_ptr<collectives::Bootstrap>>;

// Runs `body` for each view on its own thread. Returns the text of each error.
std::vector<std::string> run(Views& views,
                             const std::function<void(collectives::Bootstrap&)>& body) {
  std::vector<std::string> errors(views.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < views.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        body(*views[i]);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  for (auto& thread : threads) thread.join();
  return errors;
}

TEST(Bootstrap, OfOneProcessIsAlone) {
  const auto alone = collectives::single_process();
  EXPECT_EQ(alone->processes(), 1);
  EXPECT_EQ(alone->process(), 0);
  EXPECT_EQ(alone->all_gather("x", "test"), std::vector<std::string>{"x"});
  EXPECT_EQ(alone->hosts(), std::vector<int>{0});
  EXPECT_EQ(alone->description(), "one process");
  alone->finish();
}

TEST(Bootstrap, GathersEverybodysValueRoundAfterRound) {
  for (const int processes : {1, 2, 5}) {
    Views views = collectives::in_memory_bootstrap(std::vector<int>(std::size_t(processes)),
                                                   milliseconds(60000));
    const auto errors = run(views, [&](collectives::Bootstrap& mine) {
      for (int round = 0; round < 200; ++round) {
        const auto all = mine.all_gather(std::to_string(mine.process() * 1000 + round), "numbers");
        for (int p = 0; p < processes; ++p)
          engine::require(all.at(std::size_t(p)) == std::to_string(p * 1000 + round),
                          "wrong value");
      }
      mine.finish();
    });
    for (const auto& error : errors) EXPECT_EQ(error, "");
  }
}

TEST(Bootstrap, NumbersHostsInOrderOfFirstAppearance) {
  Views views = collectives::in_memory_bootstrap({7, 3, 7, 0}, milliseconds(100));
  EXPECT_EQ(views[2]->hosts(), (std::vector<int>{0, 1, 0, 2}));
}

TEST(Bootstrap, NamesWhoIsMissingAndFailsAtOnceAfterThat) {
  Views views = collectives::in_memory_bootstrap({0, 0, 0, 0}, milliseconds(50));
  const auto errors = run(views, [&](collectives::Bootstrap& mine) {
    if (mine.process() % 2 == 0) mine.all_gather("x", "addresses");
  });
  for (const std::size_t p : {0, 2})
    EXPECT_EQ(errors[p], "exchange of addresses: after 50 ms these processes are missing: 1 3");
  try {
    views[1]->all_gather("x", "addresses");
    FAIL() << "the exchange is broken";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), Code::kTimeout);
    EXPECT_EQ(std::string(error.what()), errors[0]);
  }
}

TEST(Bootstrap, AnAbandonedExchangeAndAllLaterOnesEndAtOnce) {
  Views views = collectives::in_memory_bootstrap({0, 0, 1}, milliseconds(60000));
  const auto begin = engine::Clock::now();
  const auto errors = run(views, [&](collectives::Bootstrap& mine) {
    if (mine.process() == 1) {
      EXPECT_TRUE(await(others_sleep));
      return mine.abandon({Code::kPeerLost, "rank 1 died"});
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        mine.all_gather("x", "names");
      } catch (const engine::Error& error) {
        EXPECT_EQ(error.code(), Code::kPeerLost);
        if (attempt == 1) throw;
      }
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"rank 1 died", "", "rank 1 died"}));
  EXPECT_LT(engine::Clock::now() - begin, milliseconds(30000));
}

TEST(Bootstrap, RefusesDifferentExchangesAtOnce) {
  Views views = collectives::in_memory_bootstrap({0, 0}, milliseconds(60000));
  const auto errors = run(views, [&](collectives::Bootstrap& mine) {
    mine.all_gather("x", mine.process() == 0 ? "apples" : "pears");
  });
  for (const auto& error : errors) {
    EXPECT_THAT(error, testing::HasSubstr("apples"));
    EXPECT_THAT(error, testing::HasSubstr("pears"));
  }
}

TEST(Bootstrap, RefusesValuesAboveAMebibyte) {
  Views views = collectives::in_memory_bootstrap({0}, milliseconds(100));
  EXPECT_NO_THROW(views[0]->all_gather(std::string(1 << 20, 'x'), "much"));
  EXPECT_THROW(views[0]->all_gather(std::string((1 << 20) + 1, 'x'), "too much"), engine::Error);
}

// Runs the part of each of three processes; that of the second is `fails`. Returns what each threw.
std::vector<std::string> parts(const std::function<std::string()>& fails, int deadline = 60000) {
  Views views = collectives::in_memory_bootstrap({0, 0, 0}, milliseconds(deadline));
  return run(views, [&](collectives::Bootstrap& mine) {
    const auto fine = [&] { return std::string(std::size_t(mine.process()), 'x'); };
    const auto all = collectives::all_or_none(
        mine, "parts", mine.process() == 1 ? fails : std::function<std::string()>(fine));
    engine::require(all == std::vector<std::string>{"", "y", "xx"}, "other texts");
  });
}

TEST(Outcome, OfAllIsEverybodysTextOrEverybodysError) {
  using testing::ElementsAre;
  EXPECT_THAT(parts([] { return std::string("y"); }), ElementsAre("", "", ""));
  EXPECT_THAT(parts([]() -> std::string { engine::fail(Code::kIo, "no - room + here"); }),
              ElementsAre("process 1: no - room + here", "no - room + here",
                          "process 1: no - room + here"));
  EXPECT_THAT(parts([]() -> std::string { throw std::runtime_error("broken"); }),
              ElementsAre("process 1: parts: broken", "broken", "process 1: parts: broken"));
}

TEST(Outcome, OfAWaitInVainIsNotExchanged) {
  const auto errors =
      parts([]() -> std::string { engine::fail(Code::kPeerLost, "rank 7 died"); }, 50);
  EXPECT_EQ(errors[1], "rank 7 died");
  for (const std::size_t p : {0, 2})
    EXPECT_EQ(errors[p], "exchange of parts: after 50 ms these processes are missing: 1");
}

TEST(Outcome, KeepsTheCodeOfAnError) {
  const collectives::Outcome mine("parts", [] { return std::string(); });
  const collectives::Outcome other(
      "parts", []() -> std::string { engine::fail(Code::kAborted, "stopped"); });
  try {
    mine.texts({mine.told(), other.told()});
    FAIL() << "one has failed";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), Code::kAborted);
    EXPECT_STREQ(error.what(), "process 1: stopped");
  }
}

}  // namespace bootstrap_test
}  // namespace lockstep::test
