// SPDX-License-Identifier: MIT
// Containers hold clients' variables, and invalid requests and jobs are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/reference/reference_device.h"
#include "test/strategies/parameter_server/server/small_server.h"

namespace lockstep::test {
namespace shard_store_test {

using namespace strategies;
using engine::Code;
using testing::HasSubstr;
using How = NamedVariables::How;

NamedVariables::Value scalar(float value) {
  return {{}, engine::DType::kFloat32, slices_of(std::vector<float>{value})};
}

float read(const ShardStore& store, const std::string& container, const std::string& name) {
  return floats_of(store.read(container, name).body).at(0);
}

class Store : public testing::Test {
 protected:
  std::unique_ptr<engine::Ops> ops = engine::reference_ops(engine::DType::kFloat32);
  ShardStore store{*ops};
};

TEST_F(Store, StateOutlivesClientsUntilItIsReset) {
  store.assign("c", "x", How::kInit, scalar(0));
  store.assign("c", "x", How::kAdd, scalar(1));
  EXPECT_EQ(read(store, "c", "x"), 1.0f);
  store.assign("c", "x", How::kAdd, scalar(1));  // as another client
  EXPECT_EQ(read(store, "c", "x"), 2.0f);
  EXPECT_EQ(store.reset("c"), 1u);
  const std::string why = refused([&] { store.read("c", "x"); }, Code::kInvalid);
  EXPECT_THAT(why, HasSubstr("'x'"));
  EXPECT_THAT(why, HasSubstr("'c'"));
  EXPECT_EQ(store.reset("c"), 0u);
}

TEST_F(Store, TheSameNameInTwoContainersIsTwoVariables) {
  store.assign("one", "x", How::kInit, scalar(1));
  store.assign("two", "x", How::kInit, scalar(2));
  store.assign("two", "x", How::kAdd, scalar(2));
  EXPECT_EQ(read(store, "one", "x"), 1.0f);
  EXPECT_EQ(read(store, "two", "x"), 4.0f);
  store.reset("two");
  EXPECT_EQ(read(store, "one", "x"), 1.0f);
}

TEST_F(Store, ASecondInitIsAnErrorUnlessForced) {
  store.assign("c", "x", How::kInit, scalar(1));
  EXPECT_THAT(refused([&] { store.assign("c", "x", How::kInit, scalar(5)); }, Code::kInvalid),
              HasSubstr("'x' is in container 'c' already"));
  EXPECT_EQ(read(store, "c", "x"), 1.0f);
  store.assign("c", "x", How::kForce, scalar(5));
  EXPECT_EQ(read(store, "c", "x"), 5.0f);
}

// A client adds up variables of three tasks: a = 1, b = a + 2, c = a + b.
TEST_F(Store, AClientAddsUpVariablesOfThreeServers) {
  ShardStore second(*ops), third(*ops);
  store.assign("", "a", How::kInit, scalar(1));
  second.assign("", "b", How::kInit, scalar(read(store, "", "a") + 2));
  third.assign("", "c", How::kInit, scalar(read(store, "", "a") + read(second, "", "b")));
  EXPECT_EQ(read(third, "", "c"), 4.0f);
}

TEST_F(Store, WhatDoesNotFitIsRefusedAndNothingIsChanged) {
  store.assign("c", "x", How::kInit, scalar(1));
  const std::uint64_t before = store.checksum();
  const std::vector<float> two{1, 2};
  const NamedVariables::Value pair{{2}, engine::DType::kFloat32, slices_of(two)};
  NamedVariables::Value torn = pair, integer = scalar(1);
  torn.body = slices_of(std::vector<float>{1});
  integer.dtype = engine::DType::kInt32;
  for (const auto& [name, how, value] :
       std::vector<std::tuple<std::string, How, NamedVariables::Value>>{{"x", How::kSet, pair},
                                                                        {"x", How::kAdd, pair},
                                                                        {"x", How::kAdd, integer},
                                                                        {"x", How::kForce, torn},
                                                                        {"y", How::kInit, torn},
                                                                        {"y", How::kSet, pair},
                                                                        {"y", How::kAdd, pair},
                                                                        {"", How::kInit, pair}}) {
    const auto assign = [&, n = name, h = how, v = value] { store.assign("c", n, h, v); };
    EXPECT_THAT(refused(assign, Code::kInvalid), HasSubstr("container 'c'"));
  }
  EXPECT_EQ(refused([&] { store.assign("new", "y", How::kSet, pair); }, Code::kInvalid).empty(),
            false);
  EXPECT_EQ(store.containers().size(), 1u);
  EXPECT_EQ(store.checksum(), before);
}

TEST_F(Store, OpenSaysWhatCannotBe) {
  JobSpec good;
  good.shards = {whole_shard("w", {4, 3}), whole_shard("b", {4})};
  good.policy.workers = 3;
  EXPECT_EQ(store.open("job", 1, good), 64u);
  const auto why = [&](const std::function<void(JobSpec&)>& change) {
    JobSpec spec = good;
    change(spec);
    return refused([&] { store.open("job", 2, spec); }, Code::kInvalid);
  };
  EXPECT_THAT(why([](JobSpec& s) { s.rule.clip_norm = 1; }), HasSubstr("clips the global norm"));
  EXPECT_THAT(why([](JobSpec& s) { s.rule.kind = engine::UpdateKind::kLars; }),
              HasSubstr("the optimizer is lars"));
  EXPECT_THAT(why([](JobSpec& s) { s.shards[0].rows = 5; }), HasSubstr("'w'"));
  EXPECT_THAT(why([](JobSpec& s) { s.shards[0].first_row = ~std::size_t(0); }),
              HasSubstr("not within"));
  EXPECT_THAT(why([](JobSpec& s) { s.shards[1].name = "w"; }), HasSubstr("differ in shape"));
  EXPECT_THAT(why([](JobSpec& s) { s.shards[1] = s.shards[0]; }), HasSubstr("share row 0"));
  EXPECT_THAT(why([](JobSpec& s) { s.shards[1].dtype = engine::DType::kInt32; }),
              HasSubstr("int32"));
  EXPECT_THAT(why([](JobSpec& s) { s.shards[1].name = "a@b"; }), HasSubstr("'@'"));
  EXPECT_THAT(why([](JobSpec& s) { s.policy.workers = 0; }), HasSubstr("0 workers"));
  EXPECT_THAT(why([](JobSpec& s) { s.policy.aggregate = 4; }), HasSubstr("4 workers"));
  EXPECT_THAT(why([](JobSpec& s) { s.rule.momentum = 1; }), HasSubstr("momentum"));
  EXPECT_THAT(why([](JobSpec& s) { s.rule.epsilon = -1; }), HasSubstr("epsilon"));
  const std::vector<std::uint64_t> huge{std::uint64_t(1) << 40, std::uint64_t(1) << 40};
  EXPECT_THAT(refused([&] { shape_of(huge, "w"); }, Code::kInvalid), HasSubstr("2^48"));
  EXPECT_THAT(refused([&] { shape_of(std::vector<std::uint64_t>(5, 1), "w"); }, Code::kInvalid),
              HasSubstr("5 extents"));
}

TEST_F(Store, GenerationsGoUpAndTheSameOpenTwiceIsOne) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {1})};
  store.open("job", 5, spec);
  store.assign_parts("job", 5, {{0, 0, 1}}, slices_of(std::vector<float>{7}));
  const std::uint64_t before = store.checksum();
  store.open("job", 5, spec);
  EXPECT_EQ(store.checksum(), before) << "the call came twice: its first answer was lost";
  EXPECT_EQ(read(store, "job", "w"), 7.0f);
  JobSpec other = spec;
  other.policy.workers = 2;
  EXPECT_NE(refused([&] { store.open("job", 5, other); }, Code::kInvalid), "");
  EXPECT_NE(refused([&] { store.open("job", 4, spec); }, Code::kInvalid), "");
  store.open("job", 6, spec);
  EXPECT_THAT(refused([&] { read(store, "job", "w"); }, Code::kUnavailable),
              HasSubstr("no values yet"));
  EXPECT_THAT(refused(
                  [&] {
                    store.assign_parts("job", 5, {{0, 0, 1}}, slices_of(std::vector<float>{7}));
                  },
                  Code::kUnavailable),
              HasSubstr("generation 6"));
}

TEST_F(Store, AJobAndClientsHaveNoNameInCommon) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {1})};
  store.assign("job", "w", How::kInit, scalar(1));
  EXPECT_THAT(refused([&] { store.open("job", 1, spec); }, Code::kInvalid),
              HasSubstr("client's own"));
  store.reset("job");
  store.open("job", 1, spec);
  EXPECT_THAT(refused([&] { store.assign("job", "w", How::kForce, scalar(1)); }, Code::kInvalid),
              HasSubstr("belongs to a training job"));
}

TEST_F(Store, ValuesComeBeforeAnythingElse) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {4}), whole_shard("v", {2})};
  const PullOrder order{.generation = 3, .parts = {{0, 0, 4}}};
  const auto pull = [&] { store.pull("job", order, nullptr, [](ShardAnswer) {}); };
  EXPECT_THAT(refused(pull, Code::kUnavailable), HasSubstr("'job'"));
  store.open("job", 3, spec);
  EXPECT_NE(refused(pull, Code::kUnavailable), "");
  store.assign_parts("job", 3, {{0, 0, 3}, {1, 0, 2}}, slices_of(std::vector<float>(5, 1)));
  EXPECT_NE(refused(pull, Code::kUnavailable), "") << "one element has no value yet";
  store.assign_parts("job", 3, {{0, 3, 4}}, slices_of(std::vector<float>{2}));
  EXPECT_EQ(refused(pull, Code::kUnavailable), "");
}

TEST_F(Store, PullsThatWaitEndWithTheVersionTheCallerOrTheContainer) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {1})};
  SmallServer server(spec);
  std::vector<std::string> ends;
  const auto wait = [&](std::int64_t version, const CallerPointer& caller) {
    PullOrder order{.parts = {{0, 0, 1}}};
    order.at_least = version;
    server.store.pull("job", order, caller, [&ends](ShardAnswer answer) {
      ends.push_back(answer.error ? std::string(engine::name(answer.error->code()))
                                  : fmt::format("version {}", answer.version));
    });
  };
  const auto caller = std::make_shared<TestCaller>();
  wait(0, nullptr);
  wait(1, nullptr);
  wait(2, caller);
  wait(3, nullptr);
  EXPECT_EQ(ends, std::vector<std::string>{"version 0"});
  server.push(server.order(0, std::vector<float>{1}));
  EXPECT_EQ(ends.back(), "version 1");
  caller->go();
  server.store.drop_gone();
  EXPECT_EQ(ends.back(), engine::name(Code::kTimeout));
  EXPECT_EQ(server.job().status().waiting_calls, 1u);
  server.store.open("job", 2, spec);
  EXPECT_EQ(ends.back(), engine::name(Code::kUnavailable));
  EXPECT_EQ(ends.size(), 4u);
}

TEST_F(Store, WaitingCallsEndWithTheServer) {
  std::string end;
  {
    JobSpec spec;
    spec.shards = {whole_shard("w", {1})};
    SmallServer server(spec);
    PullOrder order{.parts = {{0, 0, 1}}};
    order.at_least = 1;
    server.store.pull("job", order, nullptr,
                      [&](ShardAnswer answer) { end = engine::name(answer.error.value().code()); });
  }
  EXPECT_EQ(end, engine::name(Code::kAborted));
}

TEST_F(Store, OrdersThatDoNotFitAreRefusedAndNothingIsChanged) {
  JobSpec spec;
  spec.shards = {whole_shard("w", {4, 2}), whole_shard("frozen", {2}), whole_shard("rows", {4, 2})};
  spec.shards[1].frozen = true;
  spec.shards[2].sparse = true;
  spec.policy.workers = 2;
  SmallServer server(spec);
  const std::vector<float> gradient(8, 1);
  server.push(server.order(0, gradient));
  const std::uint64_t before = server.store.checksum();
  const auto why = [&](const std::function<void(PushOrder&)>& change, Code code = Code::kInvalid) {
    PushOrder order = server.order(1, gradient);
    change(order);
    return refused([&] { server.push(order); }, code);
  };
  EXPECT_THAT(why([](PushOrder& o) { o.worker = 2; }), HasSubstr("worker 2"));
  EXPECT_THAT(why([](PushOrder& o) { o.parts[0].shard = 3; }), HasSubstr("3 shards"));
  EXPECT_THAT(why([](PushOrder& o) { o.parts[0].end = 9; }), HasSubstr("'w'"));
  EXPECT_THAT(why([](PushOrder& o) { o.parts[0].begin = ~std::size_t(0); }), HasSubstr("'w'"));
  EXPECT_THAT(why([](PushOrder& o) { o.parts = {{0, 0, 5}, {0, 4, 7}}; }), HasSubstr("element 4"));
  EXPECT_THAT(why([](PushOrder& o) { o.parts = {{1, 0, 2}}; }), HasSubstr("'frozen'"));
  EXPECT_THAT(why([](PushOrder& o) { o.parts = {{2, 0, 8}}; }), HasSubstr("by rows"));
  EXPECT_THAT(why([](PushOrder& o) {
                o.parts.clear(), o.rows = ShardRows{0, {0, 1, 2, 3}};
              }),
              HasSubstr("not pushed by rows"));
  EXPECT_THAT(why([](PushOrder& o) {
                o.parts.clear(), o.rows = ShardRows{2, {0, 2, 1, 3}};
              }),
              HasSubstr("ascend"));
  EXPECT_THAT(why([](PushOrder& o) {
                o.parts.clear(), o.rows = ShardRows{2, {0, 1, 2, 4}};
              }),
              HasSubstr("row 4"));
  EXPECT_THAT(why([](PushOrder& o) { o.bfloat16 = true; }), HasSubstr("16 bytes, and 32 came"));
  EXPECT_THAT(why([](PushOrder& o) { o.body.clear(); }), HasSubstr("0 came"));
  EXPECT_THAT(why([](PushOrder& o) { o.sequence = 0; }), HasSubstr("number 0"));
  EXPECT_THAT(why([](PushOrder& o) { o.pulled = -1; }), HasSubstr("-1"));
  EXPECT_THAT(why([](PushOrder& o) { o.rate = std::numeric_limits<double>::infinity(); }),
              HasSubstr("rate"));
  EXPECT_THAT(why([](PushOrder& o) { o.generation = 2; }, Code::kUnavailable),
              HasSubstr("generation 1"));
  EXPECT_EQ(server.store.checksum(), before);
  PullOrder twice{.parts = {{0, 0, 2}, {0, 1, 3}}};
  EXPECT_NE(refused([&] { server.store.pull("job", twice, nullptr, {}); }, Code::kInvalid), "");
}

}  // namespace shard_store_test
}  // namespace lockstep::test
