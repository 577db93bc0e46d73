// SPDX-License-Identifier: MIT
// The store behind its messages, as a client in any language sees it.
#include "strategies/parameter_server/server/shard_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "engine/reference/reference_device.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/fuzz/damage.h"
#include "test/strategies/parameter_server/server/service_calls.h"

namespace lockstep::test {
namespace shard_service_test {

using namespace strategies;
using engine::Code;
using testing::ElementsAre;
using testing::HasSubstr;

struct Server {
  std::unique_ptr<engine::Ops> ops = engine::reference_ops(engine::DType::kFloat32);
  MemoryStorage storage;
  ShardStore store{*ops, 1 << 20};
  ShardService service{store, storage, engine::Log("", engine::Log::Level::kError)};
};

AssignRequest scalar(const std::string& container, const std::string& name,
                     AssignRequest::How how) {
  AssignRequest request;
  request.set_container(container);
  request.set_name(name);
  request.set_dtype("float32");
  request.set_how(how);
  return request;
}

float read(Server& server, const std::string& container, const std::string& name) {
  ReadRequest request;
  request.set_container(container);
  request.set_name(name);
  std::vector<float> value;
  const auto answer = ask<ReadReply>(server.service, "Read", request, {}, &value);
  EXPECT_EQ(answer.dtype(), "float32");
  return value.at(0);
}

void assign(Server& server, const AssignRequest& request, float value) {
  ask<AssignReply>(server.service, "Assign", request, std::vector<float>{value});
}

TEST(ShardService, KeepsVariablesForTheNextClient) {
  Server server;
  assign(server, scalar("c", "x", AssignRequest::INIT), 0);
  assign(server, scalar("c", "x", AssignRequest::ADD), 1);
  EXPECT_EQ(read(server, "c", "x"), 1.0f);
  assign(server, scalar("c", "x", AssignRequest::ADD), 1);
  EXPECT_EQ(read(server, "c", "x"), 2.0f);
  EXPECT_NE(
      refused([&] { assign(server, scalar("c", "x", AssignRequest::INIT), 0); }, Code::kInvalid),
      "");
  ResetRequest reset;
  reset.set_container("c");
  EXPECT_EQ(ask<ResetReply>(server.service, "Reset", reset).variables(), 1u);
  EXPECT_THAT(refused([&] { read(server, "c", "x"); }, Code::kInvalid), HasSubstr("'x'"));
}

TEST(ShardService, OfThreeTasksAddUpToFour) {
  Server first, second, third;
  assign(first, scalar("", "a", AssignRequest::INIT), 1);
  assign(second, scalar("", "b", AssignRequest::INIT), read(first, "", "a") + 2);
  assign(third, scalar("", "c", AssignRequest::INIT), read(first, "", "a") + read(second, "", "b"));
  EXPECT_EQ(read(third, "", "c"), 4.0f);
}

PushRequest push_of(std::uint32_t worker, std::uint64_t sequence) {
  PushRequest push;
  push.set_container("job");
  push.set_generation(1);
  push.set_worker(worker);
  push.set_sequence(sequence);
  push.set_rate(0.5);
  push.set_last(true);
  push.add_parts()->set_end(8);
  return push;
}

TEST(ShardService, TrainsAJob) {
  Server server;
  open_small_job(server.service);
  PullRequest pull;
  pull.set_container("job");
  pull.add_parts()->set_begin(2);
  pull.mutable_parts(0)->set_end(5);
  std::vector<float> weights;
  auto pulled = ask<PullReply>(server.service, "Pull", pull, {}, &weights);
  EXPECT_EQ(pulled.version(), 0);
  EXPECT_THAT(weights, ElementsAre(1, 1, 1));

  PushRequest push = push_of(1, 1);
  push.set_want_weights(true);
  auto pushed = ask<PushReply>(server.service, "Push", push, std::vector<float>(8, 3), &weights);
  EXPECT_EQ(pushed.what(), PushReply::APPLIED);
  EXPECT_EQ(pushed.version(), 1);
  ASSERT_EQ(weights.size(), 8u);
  EXPECT_NEAR(weights[0], 0.5, 1e-6) << "the first step of Adam is as large as the rate";
  pushed = ask<PushReply>(server.service, "Push", push, std::vector<float>(8, 3));
  EXPECT_EQ(pushed.what(), PushReply::REPEATED);

  PushRowsRequest rows;
  rows.set_container("job");
  rows.set_generation(1);
  rows.set_sequence(1);
  rows.set_rate(0.25);
  rows.set_shard(1);
  rows.add_rows(2);
  rows.add_rows(7);
  rows.set_last(true);
  pushed = ask<PushReply>(server.service, "PushRows", rows, std::vector<float>(6, 1));
  EXPECT_EQ(pushed.what(), PushReply::APPLIED);
  EXPECT_EQ(pushed.staleness(), 1u);
  PullRowsRequest pull_rows;
  pull_rows.set_container("job");
  pull_rows.set_shard(1);
  for (const std::uint64_t row : {2, 3, 7}) pull_rows.add_rows(row);
  pulled = ask<PullReply>(server.service, "PullRows", pull_rows, {}, &weights);
  EXPECT_EQ(pulled.version(), 2);
  ASSERT_EQ(weights.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(weights[i], i / 3 == 1 ? 1 : 0.75, 1e-6);

  const auto status =
      nlohmann::json::parse(ask<StatusReply>(server.service, "Status", StatusRequest()).json());
  const auto& job = status["containers"][0]["job"];
  EXPECT_EQ(status["containers"][0]["name"], "job");
  EXPECT_EQ(status["containers"][0]["bytes"], 26 * 4 * 3);
  EXPECT_EQ(job["version"], 2);
  EXPECT_EQ(job["pushes"]["applied"], 2);
  EXPECT_EQ(job["pushes"]["repeated"], 1);
  EXPECT_EQ(job["pushes"]["lost"], 0);
  EXPECT_EQ(job["rows_pushed"], 2);
  EXPECT_EQ(job["staleness"]["most"], 1);
  EXPECT_EQ(job["workers"][1]["last"], 1);
  EXPECT_GE(job["workers"][1]["seconds_since"], 0);
}

TEST(ShardService, APullWaitsForItsVersionAndNobodyForACallerWhoIsGone) {
  Server server;
  open_small_job(server.service);
  PullRequest pull;
  pull.set_container("job");
  pull.add_parts()->set_end(1);
  pull.set_at_least(1);
  std::atomic<int> versions = 0, gone = 0;
  const auto start = [&](const CallerPointer& caller) {
    server.service.call("Pull", message_of(pull), caller, [&](rpc::Reply reply) {
      ++(reply.ok() ? versions : gone);
      EXPECT_TRUE(reply.ok() || reply.code == Code::kTimeout) << reply.why;
    });
  };
  const auto caller = std::make_shared<TestCaller>();
  start(caller);
  start(std::make_shared<TestCaller>());
  EXPECT_EQ(versions + gone, 0);
  caller->go();
  const auto deadline = engine::Clock::now() + std::chrono::seconds(10);
  while (gone == 0 && engine::Clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(gone, 1);
  ask<PushReply>(server.service, "Push", push_of(0, 1), std::vector<float>(8, 1));
  EXPECT_EQ(versions, 1);
}

TEST(ShardService, JoinEndsWhenTheChiefSaysSo) {
  Server server;
  EXPECT_FALSE(server.service.join(engine::Clock::now()).has_value());
  DoneRequest done;
  done.set_why("the chief fell");
  done.set_failed(true);
  std::thread chief([&] { ask<DoneReply>(server.service, "Done", done); });
  const auto end = server.service.join(engine::Clock::now() + std::chrono::seconds(10));
  chief.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->why, "the chief fell");
  EXPECT_TRUE(end->failed);
}

TEST(ShardService, RefusesWhatIsNoCall) {
  Server server;
  open_small_job(server.service);
  const std::uint64_t before = server.store.checksum();
  const auto why = [&](const std::string& method, rpc::Message message) {
    const rpc::Reply reply = call(server.service, method, std::move(message));
    EXPECT_EQ(engine::name(reply.code), engine::name(Code::kInvalid));
    return reply.why;
  };
  EXPECT_THAT(why("Explode", {}), HasSubstr("no method 'Explode'"));
  EXPECT_THAT(why("", {}), HasSubstr("no method"));
  EXPECT_THAT(why("Pull", {"\xff\xff garbage", {}}), HasSubstr("none of this call's messages"));
  EXPECT_THAT(why("Pull", {std::string(ShardService::kMostHead + 1, '\0'), {}}),
              HasSubstr("a head of"));
  EXPECT_THAT(why("Pull", {"", slices_of(std::vector<float>{1})}), HasSubstr("no arrays"));
  AssignRequest assign = scalar("c", "x", AssignRequest::INIT);
  assign.set_dtype("float31");
  EXPECT_THAT(why("Assign", message_of(assign)), HasSubstr("float31"));
  assign.set_dtype("float32");
  assign.set_how(AssignRequest::How(7));
  EXPECT_THAT(why("Assign", message_of(assign, slices_of(std::vector<float>{1}))),
              HasSubstr("no way 7"));
  OpenRequest open = small_job_message();
  open.set_generation(2);
  open.mutable_shards(0)->set_rows(std::uint64_t(1) << 40);
  EXPECT_THAT(why("Open", message_of(open)), HasSubstr("'w'"));
  open.mutable_shards(0)->set_shape(0, std::uint64_t(1) << 40);
  const rpc::Reply large = call(server.service, "Open", message_of(open));
  EXPECT_EQ(engine::name(large.code), engine::name(Code::kMemory)) << large.why;
  EXPECT_EQ(server.store.checksum(), before);
}

// Every method survives damaged messages. A refused message changes nothing; any other is answered.
TEST(ShardService, LivesThroughAnyBytes) {
  struct Seed {
    std::string method;
    rpc::Message message;
  };
  std::vector<Seed> seeds;
  const auto add = [&](const std::string& method, const google::protobuf::MessageLite& head,
                       std::size_t floats = 0) {
    seeds.push_back({method, message_of(head, slices_of(std::vector<float>(floats, 2.0f)))});
  };
  OpenRequest open = small_job_message();
  open.set_generation(2);
  add("Open", open);
  PullRequest pull;
  pull.set_container("job");
  pull.set_generation(1);
  pull.add_parts()->set_end(8);
  add("Pull", pull);
  add("Push", push_of(0, 1), 8);
  PullRowsRequest pull_rows;
  pull_rows.set_container("job");
  pull_rows.set_shard(1);
  PushRowsRequest push_rows;
  push_rows.set_container("job");
  push_rows.set_generation(1);
  push_rows.set_sequence(1);
  push_rows.set_shard(1);
  for (const std::uint64_t row : {2, 3, 7}) pull_rows.add_rows(row), push_rows.add_rows(row);
  add("PullRows", pull_rows);
  add("PushRows", push_rows, 9);
  AssignRequest variable = scalar("job", "mine", AssignRequest::INIT);
  variable.add_shape(3);
  add("Assign", variable, 3);
  AssignRequest values;
  values.set_container("job");
  values.set_generation(1);
  values.add_parts()->set_end(8);
  add("Assign", values, 8);
  ReadRequest of_job;
  of_job.set_container("job");
  of_job.set_name("w");
  add("Read", of_job);
  ResetRequest reset;
  reset.set_container("job");
  add("Reset", reset);
  SaveRequest save;
  save.set_container("job");
  save.set_generation(1);
  save.set_folder("saves");
  save.set_step(3);
  save.set_ranks(1);
  add("Save", save);
  RestoreRequest restore;
  restore.set_container("job");
  restore.set_generation(2);
  restore.set_folder("saves");
  restore.set_step(3);
  restore.add_zero("momentum/");
  add("Restore", restore);
  seeds.push_back({"Status", {std::string("\x08\x01", 2), {}}});  // an unknown field
  DoneRequest done;
  done.set_why("over");
  add("Done", done);

  std::size_t refusals = 0;
  std::unique_ptr<Server> server;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    if (!server) {
      server = std::make_unique<Server>();
      open_small_job(server->service);
    }
    const Seed& seed = seeds[number % seeds.size()];
    rpc::Message message = seed.message;
    message.head = damaged(message.head, number);
    if (number % 7 == 0 && !message.body.empty()) message.body[0].size -= number % 5;
    const std::uint64_t before = server->store.checksum();
    const auto caller = std::make_shared<TestCaller>();
    caller->go();  // the next call or the sweep ends waits
    const rpc::Reply reply = call(server->service, seed.method, message, caller);
    if (!reply.ok()) {
      ++refusals;
      ASSERT_EQ(server->store.checksum(), before)
          << seed.method << " " << number << ": " << reply.why;
    } else if (server->store.checksum() != before) {
      server.reset();
    }
  }
  EXPECT_GT(refusals, kInputs / 4);
  EXPECT_LT(refusals, kInputs) << "damage that is still a message is part of this";
}

}  // namespace shard_service_test
}  // namespace lockstep::test
