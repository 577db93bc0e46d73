// SPDX-License-Identifier: MIT
// Which algorithm a step's sums take: what is known of costs when the planner chooses, and what was
// asked for by sizes. Times are not judged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;
using strategies::CollectiveAllReduce;
using strategies::SynchronousOptions;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// What one process says and throws.
struct Said {
  std::string explained, record, error, warnings;
  collectives::Topology topology;
};

// Opens a strategy in each process of a job, `times` times.
std::vector<Said> open_all(
    const std::vector<int>& host, const SynchronousOptions& options,
    const std::function<void(std::size_t process, SynchronousOptions&)>& change = {}, int times = 1,
    const std::function<void()>& between = {}) {
  const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
  std::vector<Said> said(host.size());
  std::vector<std::thread> processes;
  for (std::size_t p = 0; p < host.size(); ++p) {
    processes.emplace_back([&, p] {
      try {
        SynchronousOptions mine = options;
        mine.log = engine::Log(
            "", engine::Log::Level::kWarning,
            [&, p](auto, std::string_view line) { (said[p].warnings += line) += '\n'; });
        if (change) change(p, mine);
        CollectiveAllReduce strategy(mine, *bootstraps[p]);
        for (int time = 0; time < times; ++time) {
          if (time > 0 && p == 0 && between) between();
          strategy.open(small_graph({}), engine::optim::sgd().rule, {});
        }
        EXPECT_EQ(strategy.verify(), "");
        said[p].explained = strategy.explain();
        said[p].record = strategy.plan();
        said[p].topology = strategy.topology();
        bootstraps[p]->finish();
      } catch (const engine::Error& error) {
        said[p].error = error.what();
      }
    });
  }
  for (std::thread& process : processes) process.join();
  return said;
}

std::vector<std::string> all(const std::vector<Said>& said, std::string Said::*what) {
  std::vector<std::string> texts;
  for (const Said& one : said) texts.push_back(one.*what);
  return texts;
}

class Costs : public testing::Test {
 protected:
  Costs() {
    fs::remove_all(folder_);
    options_ = replicas(1);
    options_.measured = true;
    options_.cost_cache = folder_;
    options_.version = "1";
  }
  ~Costs() override { fs::remove_all(folder_); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder_))
      for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("lockstep-choice-{}", getpid());
  SynchronousOptions options_;
};

TEST_F(Costs, AreMeasuredOnceAndThenReadAndAllRanksHoldTheSame) {
  const auto first = open_all({0, 0, 1}, options_);
  EXPECT_THAT(all(first, &Said::error), Each(IsEmpty()));
  EXPECT_THAT(all(first, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: measured in ")));
  for (const Said& said : first) {
    EXPECT_EQ(said.topology.costs_are, "measured");
    EXPECT_EQ(said.topology.wire, first[0].topology.wire);
    EXPECT_EQ(said.topology.hosts, first[0].topology.hosts);
  }
  ASSERT_EQ(files().size(), 1u);
  const auto again = open_all({0, 0, 1}, options_);
  EXPECT_THAT(all(again, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: measured before, and read from " +
                             folder_.string())));
  EXPECT_THAT(all(again, &Said::record), Each(first[0].record));
}

TEST_F(Costs, OfADamagedFileAreMeasuredAnewAndTheFirstProcessWarns) {
  open_all({0, 1}, options_);
  ASSERT_EQ(files().size(), 1u);
  std::ofstream(files()[0], std::ios::app) << "x";
  const auto said = open_all({0, 1}, options_);
  EXPECT_THAT(all(said, &Said::explained),
              Each(HasSubstr("costs of ranks and links: measured in ")));
  EXPECT_THAT(said[0].warnings, HasSubstr(files()[0].string() + " is ignored"));
  EXPECT_EQ(said[1].warnings, "");
}

TEST_F(Costs, AreAssumedWhereNobodyAskedForMore) {
  options_.measured = false;
  const auto said = open_all({0, 1}, options_);
  EXPECT_THAT(all(said, &Said::explained), Each(HasSubstr("\ncosts of ranks and links: assumed")));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Costs, AreNotMeasuredWhereThereIsNothingToChoose) {
  const auto one_host = open_all({0, 0}, options_);
  options_.algorithm = "ring";
  for (const auto& said : {one_host, open_all({0, 1}, options_)}) {
    EXPECT_THAT(all(said, &Said::error), Each(IsEmpty()));
    EXPECT_THAT(all(said, &Said::explained), Each(Not(HasSubstr("costs of ranks"))));
    for (const Said& one : said) EXPECT_EQ(one.topology.costs_are, "assumed");
  }
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Costs, AreMeasuredOnceAStrategy) {
  const auto said =
      open_all({0, 1}, options_, {}, 2, [&] { EXPECT_EQ(fs::remove_all(folder_), 2u); });
  EXPECT_THAT(all(said, &Said::explained),
              Each(HasSubstr("costs of ranks and links: measured in ")));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Costs, OfWhichOneProcessKnowsLessAreToldBeforeAnybodyMeasures) {
  for (const bool measured : {false, true}) {
    const auto said = open_all({0, 1}, options_, [&](std::size_t p, SynchronousOptions& mine) {
      if (p == 0) (measured ? mine.algorithm = "ring" : mine.update = "apart");
      if (p == 1 && !measured) mine.measured = false;
    });
    for (const std::string& text : all(said, &Said::error)) {
      EXPECT_THAT(text, HasSubstr("process 1 was started differently"));
      EXPECT_THAT(text, HasSubstr(measured ? "'algorithm: auto' and not 'algorithm: ring'"
                                           : "'costs: assumed' and not 'costs: measured'"));
    }
  }
  EXPECT_THAT(files(), IsEmpty());
}

}  // namespace
}  // namespace lockstep::test
