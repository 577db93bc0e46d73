// SPDX-License-Identifier: MIT
// Planner and size rules choose the algorithms of a step's sums.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "collectives/algorithms/registry.h"
#include "collectives/job/calibration.h"
#include "collectives/topology/binding.h"
#include "engine/reference/reference_device.h"
#include "strategies/synchronous/plan_record.h"
#include "strategies/synchronous/step_design.h"
#include "test/strategies/inspection.h"
#include "test/strategies/small_job.h"

namespace lockstep::test {
namespace choice_test {
namespace fs = std::filesystem;
using strategies::CollectiveAllReduce;
using strategies::SynchronousOptions;
using strategies::Update;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Holds the results and the error of one process.
struct Said {
  std::string explained, record, error, warnings;
  collectives::Topology topology;
};

// Opens a strategy `times` times in each process of a job.
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
        EXPECT_EQ(verify(strategy), "");
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

// Returns a job with more ranks than processors on two hosts. Its measured costs are kept even if
// the machine is busy with other work.
std::vector<int> crowd() {
  std::vector<int> host(std::max<std::size_t>(3, collectives::allowed_processors().size() + 1), 0);
  host.back() = 1;
  return host;
}

class Costs : public testing::Test {
 protected:
  Costs() {
    fs::remove_all(folder_);
    options_ = replicas(1);
    options_.measured = true;
    options_.cost_cache = folder_;
    options_.most_touched = std::size_t(1) << 20;
  }
  ~Costs() override { fs::remove_all(folder_); }
  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (fs::exists(folder_))
      for (const auto& entry : fs::directory_iterator(folder_)) found.push_back(entry.path());
    return found;
  }
  // Measures the costs in the same way as `lockstep plan`.
  void calibrate(const std::vector<int>& host, const collectives::Topology& topology) const {
    const auto bootstraps = collectives::in_memory_bootstrap(host, std::chrono::seconds(20));
    std::vector<std::jthread> processes;
    for (const auto& bootstrap : bootstraps)
      processes.emplace_back([&] {
        const auto ops = engine::reference_device()->ops(engine::DType::kFloat64, {});
        collectives::CalibrationOptions options;
        options.cache = folder_;
        options.most_touched = options_.most_touched;
        options.waited = [] { return 0.0; };  // keeps costs despite other work
        collectives::Job job(collectives::ranks_of(*bootstrap, topology), {});
        collectives::calibrate(job, topology, *ops, options);
        bootstrap->finish();
      });
  }
  const fs::path folder_ = fs::temp_directory_path() / fmt::format("lockstep-choice-{}", getpid());
  SynchronousOptions options_;
};

TEST_F(Costs, AreMeasuredOnceAndThenReadAndAllRanksHoldTheSame) {
  const auto first = open_all(crowd(), options_);
  EXPECT_THAT(all(first, &Said::error), Each(IsEmpty()));
  EXPECT_THAT(all(first, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: measured in ")));
  for (const Said& said : first) {
    EXPECT_EQ(said.topology.costs_are, "measured");
    EXPECT_EQ(said.topology.wire, first[0].topology.wire);
    EXPECT_EQ(said.topology.hosts, first[0].topology.hosts);
  }
  ASSERT_EQ(files().size(), 1u);
  const auto again = open_all(crowd(), options_);
  EXPECT_THAT(all(again, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: measured before, and read from " +
                             folder_.string())));
  EXPECT_THAT(all(again, &Said::record), Each(first[0].record));
}

TEST_F(Costs, OfADamagedFileAreMeasuredAnewAndTheFirstProcessWarns) {
  open_all(crowd(), options_);
  ASSERT_EQ(files().size(), 1u);
  std::ofstream(files()[0], std::ios::app) << "x";
  const auto said = open_all(crowd(), options_);
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
  const auto one_replica = open_all({0}, options_);
  options_.step.algorithm = "ring";
  options_.step.update = Update::kFused;
  for (const auto& said : {one_replica, open_all({0, 1}, options_), open_all({0, 0}, options_)}) {
    EXPECT_THAT(all(said, &Said::error), Each(IsEmpty()));
    EXPECT_THAT(all(said, &Said::explained), Each(Not(HasSubstr("costs of ranks"))));
    for (const Said& one : said) EXPECT_EQ(one.topology.costs_are, "assumed");
  }
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Costs, AreNeededForThePlaceOfTheUpdateAlone) {
  options_.step.algorithm = "ring";
  const auto said = open_all({0, 1}, options_);
  EXPECT_THAT(all(said, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: measured in ")));
  EXPECT_THAT(all(said, &Said::record), Each(said[0].record));
}

// On one host a start times only its all-reduces. The timing is valid with more ranks than
// processors.
TEST_F(Costs, OfOneHostAreTimesOfItsAllReducesUnlessMoreIsKept) {
  const std::vector<int> host(crowd().size(), 0);
  const auto timed = open_all(host, options_);
  EXPECT_THAT(all(timed, &Said::error), Each(IsEmpty()));
  EXPECT_THAT(all(timed, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: all-reduces timed in ")));
  for (const Said& said : timed) {
    EXPECT_EQ(said.topology.costs_are, "assumed");
    EXPECT_EQ(said.topology.trials, timed[0].topology.trials);
    EXPECT_EQ(said.record, timed[0].record);
  }
  ASSERT_EQ(files().size(), 1u);
  const auto kept = open_all(host, options_);
  EXPECT_THAT(all(kept, &Said::explained), Each(HasSubstr("measured before, and read from ")));
  EXPECT_EQ(kept[0].topology.trials, timed[0].topology.trials);
  EXPECT_EQ(kept[0].record, timed[0].record);
  calibrate(host, kept[0].topology);
  ASSERT_EQ(files().size(), 1u);
  const auto read = open_all(host, options_);
  EXPECT_THAT(all(read, &Said::explained),
              Each(HasSubstr("\ncosts of ranks and links: measured before, and read from " +
                             folder_.string())));
  for (const Said& said : read) {
    EXPECT_EQ(said.topology.costs_are, "measured");
    EXPECT_EQ(said.topology.hosts, read[0].topology.hosts);
    EXPECT_EQ(said.record, read[0].record);
  }
}

TEST_F(Costs, AreMeasuredOnceAStrategy) {
  const auto said =
      open_all(crowd(), options_, {}, 2, [&] { EXPECT_EQ(fs::remove_all(folder_), 2u); });
  EXPECT_THAT(all(said, &Said::explained),
              Each(HasSubstr("costs of ranks and links: measured in ")));
  EXPECT_THAT(files(), IsEmpty());
}

TEST_F(Costs, OfWhichOneProcessKnowsLessAreToldBeforeAnybodyMeasures) {
  for (const bool measured : {false, true}) {
    const auto said = open_all({0, 1}, options_, [&](std::size_t p, SynchronousOptions& mine) {
      if (p == 0 && measured) mine.step.algorithm = "ring";
      if (p == 0 && !measured) mine.step.update = Update::kSeparate;
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

// Plans the small job's step without any strategy. Its four buckets have 8192 bytes, the last 4224.
class Steps : public testing::Test {
 protected:
  strategies::StepDesign design(const std::vector<int>& host, strategies::DesignOptions options,
                                const strategies::StepPrices* prices = nullptr, double clip = 0,
                                bool unlike = false) {
    strategies::DesignInput input;
    input.graph = &graph_;
    input.rule = engine::optim::sgd({.momentum = 0.9, .clip_norm = clip}).rule;
    input.host = host;
    input.prices = prices;
    input.unlike = unlike;
    input.totals = 4, input.metrics_per_rank = 2, input.gather_per_rank = 1;
    options.step.bucket_bytes = engine::kBlock * sizeof(double);
    question_ = strategies::question(input, options);
    return strategies::design_step(input, options);
  }
  strategies::StepDesign design(const std::vector<int>& host, const std::string& algorithm,
                                const std::string& update = "auto",
                                const strategies::StepPrices* prices = nullptr, double clip = 0,
                                bool unlike = false) {
    strategies::DesignOptions options{.step = {.algorithm = algorithm}};
    options.step.update = strategies::update_of(update);
    return design(host, options, prices, clip, unlike);
  }
  std::string refused(const std::vector<int>& host, const std::string& algorithm,
                      const std::string& update = "auto", double clip = 0) {
    try {
      design(host, algorithm, update, nullptr, clip);
    } catch (const engine::Error& error) {
      EXPECT_EQ(error.code(), engine::Code::kInvalid);
      return error.what();
    }
    return "";
  }
  static std::vector<std::string> all_but_last(const std::string& first, const std::string& last) {
    std::vector<std::string> names(3, first);
    names.push_back(last);
    return names;
  }
  // Returns a cluster on which only one latency costs anything.
  static collectives::Topology topology(const std::vector<int>& host, double latency = 1e-3) {
    collectives::Topology topology;
    const collectives::HostCosts free{
        .signal = 0, .step = 0, .block = 0, .passes = {{0, 1e18, 1e18}}};
    topology.wire = {.latency = latency, .bandwidth = 1e18, .processor = 0, .message = 0};
    for (std::size_t rank = 0; rank < host.size(); ++rank) {
      if (std::size_t(host[rank]) == topology.hosts.size())
        topology.hosts.push_back({.name = fmt::format("h{}", host[rank]), .costs = free});
      topology.processes.push_back({.host = host[rank], .first_rank = int(rank)});
      topology.ranks.push_back({.process = int(rank), .host = host[rank]});
    }
    return topology;
  }
  static collectives::Choices rules(const std::vector<int>& host, const std::string& rules,
                                    double latency = 1e-3) {
    return collectives::plan_all_reduce(topology(host, latency),
                                        collectives::all_reduce_algorithms(),
                                        collectives::parse_size_rules(rules), {4224, 8192});
  }
  // Returns a planner that finds `few` best for few bytes and `many` for more; fused takes half.
  static strategies::StepPrices planner(const std::vector<int>& host, const std::string& few,
                                        const std::string& many, const std::string& fused = {}) {
    const std::string both = few + ":..8k," + many + ":8k..";
    return {{rules(host, both)},
            strategies::UpdateWay{rules(host, fused.empty() ? both : fused, 0.5e-3)}};
  }

  std::unique_ptr<engine::Device> device_ = engine::reference_device();
  std::unique_ptr<engine::Ops> ops_ = device_->ops(engine::DType::kFloat64, {});
  const engine::Graph graph_{small_graph({}), *ops_, 1};
  strategies::StepQuestion question_;
};

TEST_F(Steps, EachBucketTakesTheAlgorithmThatIsAskedForItsBytes) {
  const auto design = this->design({0, 0, 1}, "ring:..8k,hierarchical:8k..");
  EXPECT_EQ(design.algorithms, all_but_last("hierarchical", "ring"));
  for (std::size_t b = 0; b < design.buckets.size(); ++b)
    EXPECT_EQ(design.plan[std::size_t(design.stages.updates[b])].plan.algorithm,
              design.algorithms[b]);
  EXPECT_EQ(design.algorithm, "ring:..8192,hierarchical:8192..");
  EXPECT_EQ(design.update, Update::kFused);
  EXPECT_EQ(design.reason.text(), "hierarchical: it was asked for; ring: it was asked for");
  EXPECT_THAT(
      strategies::sentence(design),
      HasSubstr("all-reduce: hierarchical for 3 buckets and ring for 1, update fused\nbuckets: 4 "
                "of up to 8 KiB\nreason: hierarchical: it was asked for; ring: "));
}

TEST_F(Steps, OneAlgorithmForAllSizesIsTheStepOfItsName) {
  for (const std::string name : {"ring", "halving_doubling"}) {
    const auto by_name = design({0, 0, 1}, name);
    for (const std::string& rules : {name + ":..", name + ":..64," + name + ":64.."}) {
      const auto by_rules = design({0, 0, 1}, rules);
      EXPECT_EQ(collectives::hash(by_rules.plan), collectives::hash(by_name.plan)) << rules;
      EXPECT_EQ(by_rules.algorithm, name);
      EXPECT_EQ(by_rules.rules, name);
    }
  }
}

TEST_F(Steps, OfWhatNoRuleHoldsThePlannerChooses) {
  using testing::Contains;
  const std::vector<int> host{0, 0, 1};
  const auto prices = planner(host, "leader_hierarchical", "hierarchical");
  for (const char* update : {"fused", "separate"}) {
    const auto mixed = design(host, "ring:8k..", update, &prices);
    EXPECT_EQ(mixed.algorithms, all_but_last("ring", "leader_hierarchical"));
    EXPECT_THAT(question_.sums, Contains(4224));
    EXPECT_THAT(question_.sums, Each(testing::Lt(8192)));
    EXPECT_EQ(design(host, "auto", update, &prices).algorithms,
              all_but_last("hierarchical", "leader_hierarchical"));
    EXPECT_THAT(question_.sums, testing::IsSupersetOf({std::size_t(4224), std::size_t(8192)}));
  }
  // The planner is also asked on one host, but not with one replica.
  const auto alone = planner({0, 0}, "one_shot", "direct", "direct");
  EXPECT_EQ(design({0, 0}, "auto", "auto", &alone).algorithms, all_but_last("direct", "direct"));
  EXPECT_THAT(question_.sums, testing::IsSupersetOf({std::size_t(4224), std::size_t(8192)}));
  EXPECT_EQ(design({0, 0}, "auto", "separate", &alone).algorithms,
            all_but_last("direct", "one_shot"));
  EXPECT_EQ(design({0}, "auto").algorithms, all_but_last("direct", "direct"));
  EXPECT_THAT(question_.sums, IsEmpty());
  // If all algorithms are requested, the planner chooses only the place of the update, unless that
  // is requested, too.
  design(host, "ring");
  EXPECT_THAT(question_.buckets, testing::ElementsAre(4224, 8192));
  for (const char* update : {"fused", "separate"}) {
    design(host, "ring", update);
    EXPECT_THAT(question_.sums, IsEmpty());
  }
  design(host, "halving_doubling");
  EXPECT_THAT(question_.sums, IsEmpty());
}

TEST_F(Steps, WhatIsRecordedGivesTheSameStepWithoutThePlanner) {
  const std::vector<int> host{0, 1, 1};
  const auto prices = planner(host, "ring", "hierarchical");
  for (const std::string asked : {"auto", "leader_hierarchical:..8k", "ring"}) {
    const auto planned = design(host, asked, "auto", &prices);
    const auto again = design(host, planned.rules, std::string(name(planned.update)));
    EXPECT_EQ(collectives::hash(again.plan), collectives::hash(planned.plan)) << planned.rules;
    EXPECT_EQ(again.algorithms, planned.algorithms);
    EXPECT_THAT(question_.sums, IsEmpty());
  }
  // A checkpoint's record gives the same step, including the sums beside the buckets. Its settings
  // keep their reasons if the same is requested again.
  const engine::Log quiet("", engine::Log::Level::kError);
  for (const auto& [rules, small] :
       {std::pair("hierarchical:4k..", "halving_doubling"), {"hierarchical:8k..", "ring"}}) {
    const auto others = planner(host, small, "ring");
    const auto planned = design(host, rules, "auto", &others);
    strategies::DesignOptions recorded{.step = {.algorithm = rules}};
    ASSERT_TRUE(
        strategies::obey_record(strategies::plan_record(planned, host, {}), host, recorded, quiet));
    auto again = design(host, recorded);
    EXPECT_THAT(question_.sums, IsEmpty());
    EXPECT_EQ(collectives::hash(again.plan), collectives::hash(planned.plan));
    EXPECT_EQ(again.reason.text(), planned.reason.text(true));
    again.reason = planned.reason;
    EXPECT_EQ(strategies::sentence(again), strategies::sentence(planned));
  }
}

TEST_F(Steps, OneBucketWithoutAPlaceForTheUpdateHasItSeparateForAll) {
  for (const auto& [host, rules] : {std::pair(std::vector{0, 1}, "halving_doubling:..8k,ring:8k.."),
                                    {{0, 0}, "one_shot:..8k,direct:8k.."}}) {
    EXPECT_EQ(design(host, rules).update, Update::kSeparate);
    EXPECT_THAT(refused(host, rules, "fused"), HasSubstr("needs an algorithm that has a place"));
  }
  EXPECT_EQ(design({0, 1}, "ring:..8k,halving_doubling:8k..").update, Update::kSeparate);
  // The step ignores a rule for sizes that no bucket has.
  EXPECT_EQ(design({0, 1}, "halving_doubling:..16,ring:16..", "fused").update, Update::kFused);
  // With a fused update the planner chooses only algorithms that support it.
  const auto prices = planner({0, 1}, "halving_doubling", "ring", "ring");
  const auto planned = design({0, 1}, "auto", "auto", &prices);
  EXPECT_EQ(planned.update, Update::kFused);
  EXPECT_EQ(planned.algorithms, all_but_last("ring", "ring"));
  EXPECT_THAT(strategies::sentence(planned),
              HasSubstr("\nother sums of a step use halving_doubling"));
  EXPECT_EQ(design({0, 1}, "auto", "separate", &prices).algorithms,
            all_but_last("ring", "halving_doubling"));
}

// Each of four buckets costs two rounds of a ring of two ranks.
TEST_F(Steps, TheUpdateIsInsideUnlessThatTakesMoreThanATenthLonger) {
  const std::vector<int> host{0, 1};
  const auto ways = [&](double fused, double separate) {
    return strategies::StepPrices{{rules(host, "ring", separate)},
                                  strategies::UpdateWay{rules(host, "ring", fused)}};
  };
  const auto said = [&](double fused, double separate, bool unlike = false) {
    const auto prices = ways(fused, separate);
    const auto design = this->design(host, "auto", "auto", &prices, 0, unlike);
    const std::string update(name(design.update)), why = design.update_reason.text();
    EXPECT_THAT(strategies::sentence(design),
                HasSubstr("\nupdate: " + update + ", because " + why));
    return update + ": " + why;
  };
  const std::string both = "the sums and updates of a step are predicted to take ";
  EXPECT_EQ(said(1e-3, 2e-3), "fused: " + both + "8.00 ms fused, 16.00 ms separate");
  EXPECT_THAT(
      said(1.09e-3, 1e-3),
      HasSubstr("fused: " + both + "8.72 ms fused, 8.00 ms separate; the difference is small"));
  EXPECT_EQ(said(1.11e-3, 1e-3), "separate: " + both + "8.88 ms fused, 8.00 ms separate");
  EXPECT_THAT(said(1.11e-3, 1e-3, true), HasSubstr("fused: "));
  EXPECT_THAT(said(1.11e-3, 1e-3, true), HasSubstr("the processors differ"));
  // A requested place is used, whatever it costs.
  const auto prices = ways(9e-3, 1e-3);
  EXPECT_EQ(design(host, "auto", "fused", &prices).update_reason.text(), "it was asked for");
  EXPECT_EQ(design({0}, "auto").update_reason.text(), "there is one replica");
}

TEST_F(Steps, AClippedNormHasTheUpdateInsideOnlyWhereAllIsDirect) {
  EXPECT_EQ(design({0, 0}, "direct:..8k", "auto", nullptr, 1).update, Update::kFused);
  const auto clipped = design({0, 1}, "auto", "auto", nullptr, 1);
  EXPECT_THAT(clipped.update_reason.text(), HasSubstr("of a clipped norm all must know first"));
  EXPECT_EQ(design({0, 0}, "ring:..8k", "auto", nullptr, 1).update, Update::kSeparate);
  EXPECT_THAT(refused({0, 0}, "ring:..8k", "fused", 1), HasSubstr("ring was chosen: use separate"));
}

TEST_F(Steps, WhatCannotBeIsRefusedWithAReason) {
  for (const char* rules : {"direct:..8k,ring:8k..", "direct:..16,ring:16.."})
    EXPECT_THAT(refused({0, 1}, rules), HasSubstr("algorithm direct needs all ranks on one host"));
  EXPECT_THAT(refused({0, 0}, "x:..8k"), HasSubstr("'x'"));
  EXPECT_THAT(refused({0, 0}, "ring:..9k,direct:8k.."), HasSubstr("both want 8 KiB"));
}

TEST_F(Steps, OneShotBesideDirectGivesTheBitsOfDirect) {
  const auto by_size = [](const char* algorithm) {
    auto options = replicas(3);
    options.step.algorithm = algorithm;
    options.step.update = Update::kSeparate;
    return train_mirrored({}, options).weights;
  };
  EXPECT_EQ(by_size("one_shot:..8k,direct:8k.."), by_size("direct"));
}

TEST(Choices, ForAnUpdateThatIsToBeFusedAreAmongThoseThatHaveAPlaceForIt) {
  auto options = replicas(1);
  const auto free = open_all({0, 1, 2}, options);
  ASSERT_THAT(all(free, &Said::explained), Each(HasSubstr(", update separate")));
  options.step.update = Update::kFused;
  const auto fused = open_all({0, 1, 2}, options);
  EXPECT_THAT(all(fused, &Said::error), Each(IsEmpty()));
  EXPECT_THAT(all(fused, &Said::explained), Each(HasSubstr(", update fused")));
}

TEST(Choices, OfAMixedStepAreVerifiedBetweenHosts) {
  for (const char* rules : {"ring:..8k,hierarchical:8k..", "halving_doubling:..8k,ring:8k.."}) {
    auto options = replicas(1);
    options.step.algorithm = rules;
    const auto said = open_all({0, 0, 1}, options);  // open also verifies
    EXPECT_THAT(all(said, &Said::error), Each(IsEmpty()));
    EXPECT_THAT(all(said, &Said::explained), Each(HasSubstr(" for 3 buckets and ")));
    EXPECT_THAT(all(said, &Said::record), Each(said[0].record));
  }
}

}  // namespace choice_test
}  // namespace lockstep::test
