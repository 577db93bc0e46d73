// SPDX-License-Identifier: MIT
// TF_CONFIG is parsed, and an error names what is wrong in one line.
#include "strategies/parameter_server/cluster/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::test {
namespace tf_config_test {

using namespace strategies;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Lt;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

constexpr auto kServers = ClusterUse::kParameterServer;
constexpr auto kAllReduce = ClusterUse::kAllReduce;

std::string error_of(std::string_view text, ClusterUse use = kServers) {
  try {
    parse_tf_config(text, use);
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    EXPECT_THAT(std::string(error.what()), AllOf(StartsWith("TF_CONFIG"), Not(HasSubstr("\n"))));
    return error.what();
  }
  return "no error";
}

constexpr std::string_view kCluster =
    R"({"worker":["h1:2222","h2:2222"],"ps":["h3:2222","h4:2222"]})";

std::string with_task(std::string_view task, std::string_view cluster = kCluster) {
  return fmt::format(R"({{"cluster":{},"task":{}}})", cluster, task);
}

TEST(TfConfig, WithoutAChiefWorkerZeroIsIt) {
  const ClusterSpec spec{{"h1:2222", "h2:2222"}, {"h3:2222", "h4:2222"}, false};
  const ClusterConfig chief =
      parse_tf_config(with_task(R"({"type":"worker","index":0})"), kServers);
  EXPECT_EQ(chief.spec, spec);
  EXPECT_EQ(chief.task, (ClusterTask{Role::kChief, 0}));
  EXPECT_THAT(chief.warnings, IsEmpty());
  EXPECT_EQ(parse_tf_config(with_task(R"({"type":"worker","index":1})"), kServers).task,
            (ClusterTask{Role::kWorker, 1}));
  EXPECT_EQ(parse_tf_config(with_task(R"({"type":"ps","index":1})"), kServers).task,
            (ClusterTask{Role::kServer, 1}));
}

TEST(TfConfig, AChiefIsTheFirstOfTheWorkers) {
  const std::string_view cluster =
      R"({"chief":["c:1"],"worker":["a:1","b:1"],"ps":["s:1"],"evaluator":["e:1","e:2"]})";
  const auto task = [&](std::string_view text) {
    return parse_tf_config(with_task(text, cluster), kServers).task;
  };
  const auto spec = parse_tf_config(with_task(R"({"type":"chief","index":0})", cluster), kServers);
  EXPECT_EQ(spec.spec, (ClusterSpec{{"c:1", "a:1", "b:1"}, {"s:1"}, true}));
  EXPECT_EQ(spec.task, (ClusterTask{Role::kChief, 0}));
  EXPECT_EQ(task(R"({"type":"worker","index":0})"), (ClusterTask{Role::kWorker, 1}));
  EXPECT_EQ(task(R"({"type":"worker","index":1})"), (ClusterTask{Role::kWorker, 2}));
  EXPECT_EQ(task(R"({"type":"evaluator","index":1})"), (ClusterTask{Role::kEvaluator, 1}));
}

// The cluster does not depend on whether evaluators are listed, or by which task.
TEST(TfConfig, EvaluatorsAreNotOfTheCluster) {
  const std::string_view task = R"({"type":"evaluator","index":0})";
  const auto without =
      parse_tf_config(with_task(task, R"({"worker":["a:1"],"ps":["s:1"]})"), kServers);
  const auto with = parse_tf_config(
      with_task(task, R"({"worker":["a:1"],"ps":["s:1"],"evaluator":["e:1"]})"), kServers);
  EXPECT_EQ(without.spec, with.spec);
  EXPECT_EQ(hash_of(without.spec), hash_of(with.spec));
  EXPECT_EQ(without.task, (ClusterTask{Role::kEvaluator, 0}));
}

TEST(TfConfig, AnIndexMayBeQuotedAndAHostMayBeIPv6) {
  const auto config =
      parse_tf_config(with_task(R"({"type":"worker","index":"1"})",
                                R"({"worker":["[::1]:1","[::1]:2"],"ps":["[::1]:3"]})"),
                      kServers);
  EXPECT_EQ(config.task, (ClusterTask{Role::kWorker, 1}));
  EXPECT_EQ(config.spec.workers[1], "[::1]:2");
}

TEST(TfConfig, UnknownKeysAreIgnoredWithAWarning) {
  const auto config = parse_tf_config(
      R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":0,"trial":"7"},)"
      R"("rpc_layer":"grpc","environment":"cloud","job":{"scale":"big"}})",
      kAllReduce);
  EXPECT_THAT(config.warnings, ElementsAre("TF_CONFIG: \"job\" is ignored",
                                           "TF_CONFIG: task's \"trial\" is ignored"));
}

TEST(TfConfig, EachMistakeHasALineOfItsOwn) {
  const std::string example =
      R"(right is e.g. {"cluster":{"worker":["h1:2222","h2:2222"],"ps":["h3:2222"]},)"
      R"("task":{"type":"worker","index":0}})";
  const std::string task = R"({"type":"worker","index":0})";
  const struct {
    std::string text, error;
  } rows[] = {
      {"", "TF_CONFIG is no JSON object; " + example},
      {"worker=a:1", "TF_CONFIG is no JSON object; " + example},
      {"[1,2]", "TF_CONFIG is no JSON object; " + example},
      {R"({"task":{"type":"worker","index":0}})", "TF_CONFIG: \"cluster\" is missing; " + example},
      {fmt::format(R"({{"cluster":{}}})", kCluster), "TF_CONFIG: \"task\" is missing; " + example},
      {with_task(R"("worker")"),
       "TF_CONFIG: \"task\" must be an object, not \"worker\"; " + example},
      {with_task(task, R"(["a:1"])"),
       "TF_CONFIG: \"cluster\" must be an object, not a list; " + example},
      {with_task(task, R"({"worker":"a:1"})"),
       "TF_CONFIG: cluster's \"worker\" must be a list of addresses, [\"HOST:PORT\", ...], not "
       "\"a:1\""},
      {with_task(task, R"({"worker":["a:1",2222]})"),
       "TF_CONFIG: address 1 of cluster's \"worker\" must be a string \"HOST:PORT\", not 2222"},
      {with_task(task, R"({"worker":["a:1"],"ps":["b"]})"),
       "TF_CONFIG: /job:ps/task:0: 'b' is no address: it has no port; write HOST:PORT, e.g. "
       "node1:2222 or [::1]:2222"},
      {with_task(task, R"({"worker":["a:1"],"server":["b:1"]})"),
       "TF_CONFIG: cluster has a job \"server\", but jobs are chief, worker, ps and evaluator"},
      {with_task(task, R"({"chief":["a:1","b:1"],"ps":["s:1"]})"),
       "TF_CONFIG: cluster's \"chief\" must have 1 address, not 2"},
      {with_task(task, R"({"worker":["a:1","b:1"],"ps":["b:1"]})"),
       "TF_CONFIG: /job:worker/task:1 and /job:ps/task:0 have the same address b:1: each task "
       "needs one of its own"},
      {with_task(task, R"({"ps":["b:1"]})"),
       "TF_CONFIG: nobody trains: there must be at least one task in job \"worker\", or a "
       "\"chief\""},
      {with_task(task, R"({"worker":["a:1"]})"),
       "TF_CONFIG: cluster has no job \"ps\", and a parameter server strategy needs at least 1 "
       "server: add \"ps\":[\"HOST:PORT\"], or use a strategy of all-reduce"},
      {with_task(R"({"index":0})"),
       "TF_CONFIG: task's \"type\" is missing; it must be \"chief\", \"worker\", \"ps\" or "
       "\"evaluator\""},
      {with_task(R"({"type":7,"index":0})"),
       "TF_CONFIG: task's \"type\" is 7; it must be \"chief\", \"worker\", \"ps\" or "
       "\"evaluator\""},
      {with_task(R"({"type":"master","index":0})"),
       "TF_CONFIG: task's \"type\" is \"master\"; it must be \"chief\", \"worker\", \"ps\" or "
       "\"evaluator\""},
      {with_task(R"({"type":"chief","index":0})"),
       "TF_CONFIG: this task is a chief, but cluster has no job \"chief\""},
      {with_task(R"({"type":"worker"})"),
       "TF_CONFIG: task's \"index\" is missing; it must be a whole number from 0 on"},
      {with_task(R"({"type":"worker","index":-1})"),
       "TF_CONFIG: task's \"index\" is -1; it must be a whole number from 0 on"},
      {with_task(R"({"type":"worker","index":0.5})"),
       "TF_CONFIG: task's \"index\" is 0.5; it must be a whole number from 0 on"},
      {with_task(R"({"type":"worker","index":"1x"})"),
       "TF_CONFIG: task's \"index\" is \"1x\"; it must be a whole number from 0 on"},
      {with_task(R"({"type":"worker","index":[0]})"),
       "TF_CONFIG: task's \"index\" is a list; it must be a whole number from 0 on"},
      {with_task(R"({"type":"worker","index":2})"),
       "TF_CONFIG: this task is worker 2, but cluster's \"worker\" has 2 addresses: its index must "
       "be from 0 to 1"},
      {with_task(R"({"type":"ps","index":"7"})"),
       "TF_CONFIG: this task is ps 7, but cluster's \"ps\" has 2 addresses: its index must be from "
       "0 to 1"},
      {with_task(R"({"type":"ps","index":1})", R"({"worker":["a:1"],"ps":["s:1"]})"),
       "TF_CONFIG: this task is ps 1, but cluster's \"ps\" has 1 address: its index must be 0"},
  };
  for (const auto& row : rows) EXPECT_EQ(error_of(row.text), row.error) << row.text;
}

TEST(TfConfig, AllReduceRefusesServers) {
  const std::string_view task = R"({"type":"worker","index":0})";
  EXPECT_EQ(error_of(with_task(task), kAllReduce),
            "TF_CONFIG: cluster's \"ps\" has 2 addresses, but all-reduce uses no servers: leave "
            "\"ps\" out, or use the strategy parameter_server");
  EXPECT_EQ(error_of(with_task(task, R"({"worker":["a:1","b:1"]})"), kAllReduce), "no error");
}

// Any content of the variable gives no error or one short line.
TEST(TfConfig, GarbageIsRefusedInOneShortLine) {
  const std::string nested(32'768, '['), closed(32'768, ']'), letters(65'536, 'x');
  for (const std::string& text :
       {nested, letters, with_task(nested + closed), with_task(nested + closed, nested + closed),
        with_task(fmt::format(R"({{"type":"{}","index":0}})", letters)),
        with_task(fmt::format(R"({{"type":"worker","index":"{}"}})", letters)),
        with_task("{}", fmt::format(R"({{"{}":[]}})", letters)),
        with_task("{}", fmt::format(R"({{"worker":["{}"]}})", letters)),
        with_task("{}", "{\"worker\":[\"a\\n\\u0000b:1\"]}"), std::string("{\"\xff\xfe\":1}")})
    EXPECT_THAT(error_of(text), SizeIs(Lt(300u)));

  engine::Random random(6);
  const std::string good = with_task(R"({"type":"worker","index":0})");
  for (int round = 0; round < 3'000; ++round) {
    std::string text = good;
    for (std::uint64_t i = 1 + random.below(4); i > 0; --i)
      text[random.below(text.size())] = char(random.below(256));
    if (random.below(4) == 0) text.resize(random.below(text.size()));
    EXPECT_THAT(error_of(text), SizeIs(Lt(300u)));
  }
}

TEST(TfConfig, WhatIsWrittenIsReadBackAsTheSame) {
  for (const bool chief_job : {false, true}) {
    for (std::size_t workers = 1; workers < 4; ++workers) {
      ClusterSpec spec{{}, {"s:1", "s:2"}, chief_job};
      std::vector<ClusterTask> tasks{{Role::kServer, 1}, {Role::kEvaluator, 3}};
      for (std::size_t w = 0; w < workers; ++w) {
        spec.workers.push_back(fmt::format("w{}:1", w));
        tasks.push_back({w == 0 ? Role::kChief : Role::kWorker, w});
      }
      for (const ClusterTask& task : tasks) {
        const ClusterConfig read = parse_tf_config(tf_config(spec, task), kServers);
        EXPECT_EQ(read.spec, spec);
        EXPECT_EQ(read.task, task);
      }
    }
  }
}

}  // namespace tf_config_test
}  // namespace lockstep::test
