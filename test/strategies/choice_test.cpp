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

#include "collectives/binding.h"
#include "collectives/registry.h"
#include "engine/reference/reference_device.h"
#include "strategies/plan_record.h"
#include "strategies/step_design.h"
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

// More ranks than processors, on two hosts: what is measured of them is kept, also where the
// machine is busy with other work.
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
      open_all(crowd(), options_, {}, 2, [&] { EXPECT_EQ(fs::remove_all(folder_), 2u); });
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

// The small job's step without any strategy: four buckets, of 8192 bytes and the last of
// 4224.
class Steps : public testing::Test {
 protected:
  strategies::StepDesign design(const std::vector<int>& host, strategies::DesignOptions options,
                                const collectives::Choices* choices = nullptr, double clip = 0) {
    strategies::DesignInput input;
    input.graph = &graph_;
    input.rule = engine::optim::sgd({.momentum = 0.9, .clip_norm = clip}).rule;
    input.host = host;
    input.choices = choices;
    input.totals = 4, input.metrics_per_rank = 2, input.gather_per_rank = 1;
    options.bucket_bytes = engine::kBlock * sizeof(double);
    sizes_ = strategies::sizes_to_choose(input, options);
    return strategies::design_step(input, options);
  }
  strategies::StepDesign design(const std::vector<int>& host, const std::string& algorithm,
                                const std::string& update = "auto",
                                const collectives::Choices* choices = nullptr, double clip = 0) {
    return design(host, strategies::DesignOptions{.algorithm = algorithm, .update = update},
                  choices, clip);
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
  // A planner that finds one algorithm for few bytes and another for more.
  static collectives::Choices planner(const std::vector<int>& host, const std::string& few,
                                      const std::string& many) {
    collectives::Topology topology;
    for (std::size_t rank = 0; rank < host.size(); ++rank) {
      if (std::size_t(host[rank]) == topology.hosts.size())
        topology.hosts.push_back({.name = fmt::format("h{}", host[rank])});
      topology.processes.push_back({.host = host[rank], .first_rank = int(rank)});
      topology.ranks.push_back({.process = int(rank), .host = host[rank]});
    }
    return collectives::plan_all_reduce(
        topology, collectives::all_reduce_algorithms(),
        collectives::parse_size_rules(few + ":..8k," + many + ":8k.."), {4224, 8192});
  }

  std::unique_ptr<engine::Device> device_ = engine::reference_device();
  std::unique_ptr<engine::Ops> ops_ = device_->ops(engine::DType::kFloat64, {});
  const engine::Graph graph_{small_graph({}), *ops_, 1};
  std::vector<std::size_t> sizes_;
};

TEST_F(Steps, EachBucketTakesTheAlgorithmThatIsAskedForItsBytes) {
  const auto design = this->design({0, 0, 1}, "ring:..8k,hierarchical:8k..");
  EXPECT_EQ(design.algorithms, all_but_last("hierarchical", "ring"));
  for (std::size_t b = 0; b < design.buckets.size(); ++b)
    EXPECT_EQ(design.plan[std::size_t(design.updates[b])].plan.algorithm, design.algorithms[b]);
  EXPECT_EQ(design.algorithm, "ring:..8192,hierarchical:8192..");
  EXPECT_EQ(design.update, "fused");
  EXPECT_EQ(design.reason, "hierarchical: it was asked for; ring: it was asked for");
  EXPECT_THAT(
      strategies::sentence(design),
      HasSubstr("all-reduce: hierarchical for 3 buckets and ring for 1 with the optimizer's "
                "update inside, 4 buckets of up to 8 KiB, because hierarchical: "));
  EXPECT_THAT(sizes_, IsEmpty());
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

TEST_F(Steps, OfWhatNoRuleHoldsThePlannerChoosesBetweenHostsAndDirectServesOneHost) {
  EXPECT_EQ(design({0, 0}, "ring:8k..").algorithms, all_but_last("ring", "direct"));
  EXPECT_THAT(sizes_, IsEmpty());
  const std::vector<int> host{0, 0, 1};
  const auto choices = planner(host, "leader_hierarchical", "hierarchical");
  const auto mixed = design(host, "ring:8k..", "auto", &choices);
  EXPECT_EQ(mixed.algorithms, all_but_last("ring", "leader_hierarchical"));
  EXPECT_THAT(sizes_, testing::Contains(4224));
  EXPECT_THAT(sizes_, Each(testing::Lt(8192)));
  EXPECT_EQ(design(host, "auto", "auto", &choices).algorithms,
            all_but_last("hierarchical", "leader_hierarchical"));
  EXPECT_THAT(sizes_, testing::IsSupersetOf({std::size_t(4224), std::size_t(8192)}));
}

TEST_F(Steps, WhatIsRecordedGivesTheSameStepWithoutThePlanner) {
  const std::vector<int> host{0, 1, 1};
  const auto choices = planner(host, "ring", "hierarchical");
  for (const std::string asked : {"auto", "leader_hierarchical:..8k", "ring"}) {
    const auto planned = design(host, asked, "auto", &choices);
    const auto again = design(host, planned.rules);
    EXPECT_EQ(collectives::hash(again.plan), collectives::hash(planned.plan)) << planned.rules;
    EXPECT_EQ(again.algorithms, planned.algorithms);
    EXPECT_THAT(sizes_, IsEmpty());
  }
  // By way of a checkpoint, sums beside the buckets included.
  const auto others = planner(host, "halving_doubling", "ring");
  const auto planned = design(host, "hierarchical:4k..", "auto", &others);
  EXPECT_EQ(planned.algorithm, "hierarchical");
  strategies::DesignOptions recorded;
  const engine::Log quiet("", engine::Log::Level::kError);
  ASSERT_TRUE(
      strategies::obey_record(strategies::plan_record(planned, host, {}), host, recorded, quiet));
  EXPECT_EQ(collectives::hash(design(host, recorded).plan), collectives::hash(planned.plan));
}

TEST_F(Steps, OneBucketWithoutAPlaceForTheUpdateHasItApartForAll) {
  for (const auto& [host, rules] : {std::pair(std::vector{0, 1}, "halving_doubling:..8k,ring:8k.."),
                                    {{0, 0}, "one_shot:..8k,direct:8k.."}}) {
    EXPECT_EQ(design(host, rules).update, "apart");
    EXPECT_THAT(refused(host, rules, "fused"), HasSubstr("needs an algorithm that has a place"));
  }
  EXPECT_EQ(design({0, 1}, "ring:..8k,halving_doubling:8k..").update, "apart");
  // What is asked for sizes that no bucket has is no matter.
  EXPECT_EQ(design({0, 1}, "halving_doubling:..16,ring:16..", "fused").update, "fused");
  // A planner's choice for the last bucket alone gives way.
  const auto choices = planner({0, 1}, "halving_doubling", "ring");
  const auto planned = design({0, 1}, "auto", "auto", &choices);
  EXPECT_EQ(planned.update, "fused");
  EXPECT_EQ(planned.algorithms, all_but_last("ring", "ring"));
  EXPECT_THAT(strategies::sentence(planned),
              HasSubstr(", other sums by halving_doubling, because"));
  EXPECT_EQ(design({0, 1}, "auto", "apart", &choices).algorithms,
            all_but_last("ring", "halving_doubling"));
}

TEST_F(Steps, AClippedNormHasTheUpdateInsideOnlyWhereAllIsDirect) {
  EXPECT_EQ(design({0, 0}, "direct:..8k", "auto", nullptr, 1).update, "fused");
  EXPECT_EQ(design({0, 0}, "ring:..8k", "auto", nullptr, 1).update, "apart");
  EXPECT_THAT(refused({0, 0}, "ring:..8k", "fused", 1), HasSubstr("ring was chosen: use apart"));
}

TEST_F(Steps, WhatCannotBeIsRefusedWithAReason) {
  EXPECT_THAT(refused({0, 1}, "direct:..8k,ring:8k.."),
              HasSubstr("algorithm direct needs all ranks on one host"));
  EXPECT_THAT(refused({0, 1}, "direct:..16,ring:16.."),
              HasSubstr("algorithm direct needs all ranks on one host"));
  EXPECT_THAT(refused({0, 0}, "x:..8k"), HasSubstr("'x'"));
  EXPECT_THAT(refused({0, 0}, "ring:..9k,direct:8k.."), HasSubstr("both want 8 KiB"));
}

TEST_F(Steps, OneShotBesideDirectGivesTheBitsOfDirect) {
  const auto by_size = [](const char* algorithm) {
    auto options = replicas(3);
    options.algorithm = algorithm;
    options.update = "apart";
    return train_mirrored({}, options).weights;
  };
  EXPECT_EQ(by_size("one_shot:..8k,direct:8k.."), by_size("direct"));
}

TEST(Choices, ForAnUpdateThatIsToBeFusedAreAmongThoseThatHaveAPlaceForIt) {
  auto options = replicas(1);
  const auto free = open_all({0, 1, 2}, options);
  ASSERT_THAT(all(free, &Said::explained), Each(HasSubstr("followed by the update")));
  options.update = "fused";
  const auto fused = open_all({0, 1, 2}, options);
  EXPECT_THAT(all(fused, &Said::error), Each(IsEmpty()));
  EXPECT_THAT(all(fused, &Said::explained), Each(HasSubstr("with the optimizer's update inside")));
}

TEST(Choices, ThatARecordNamesInAWayThatCannotBeReadAreDamage) {
  const auto options = replicas(1);
  std::string record = open_all({0, 0}, options)[0].record;
  ASSERT_NE(record.find("\"algorithm\":\"direct\""), std::string::npos) << record;
  record.replace(record.find("\"algorithm\":\"direct\""), 20, "\"algorithm\":\"ring:..x\"");
  strategies::DesignOptions design;
  try {
    strategies::obey_record(record, {0, 0}, design, options.log);
    FAIL() << "it was obeyed";
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kCorrupt);
    EXPECT_THAT(error.what(), HasSubstr("the checkpoint's plan: 'x' is no size"));
  }
}

TEST(Choices, OfAMixedStepAreVerifiedBetweenHosts) {
  for (const char* rules : {"ring:..8k,hierarchical:8k..", "halving_doubling:..8k,ring:8k.."}) {
    auto options = replicas(1);
    options.algorithm = rules;
    const auto said = open_all({0, 0, 1}, options);  // which verifies
    EXPECT_THAT(all(said, &Said::error), Each(IsEmpty()));
    EXPECT_THAT(all(said, &Said::explained), Each(HasSubstr(" for 3 buckets and ")));
    EXPECT_THAT(all(said, &Said::record), Each(said[0].record));
  }
}

}  // namespace
}  // namespace lockstep::test
