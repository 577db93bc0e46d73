// SPDX-License-Identifier: MIT
// A server as a task: its state outlives its clients, unauthorized callers are refused, and it ends
// when the chief says so.
#include "strategies/session/server_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "collectives/tcp/socket.h"
#include "strategies/grpc/connection.h"
#include "strategies/parameter_server/cluster/placement_builder.h"
#include "strategies/parameter_server/worker/variable_client.h"
#include "strategies/session/held_port.h"
#include "strategies/session/task_status.h"
#include "test/strategies/grpc/certificates.h"
#include "test/strategies/parameter_server/server/service_calls.h"
#include "test/support/events.h"

namespace lockstep::test {
namespace server_task_test {

using namespace std::chrono_literals;
using namespace strategies;
using engine::Clock;
using engine::Code;
using How = NamedVariables::How;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kLong = 60s;  // reached only by a defect

ServerTaskOptions quiet() {
  ServerTaskOptions options;
  options.log = engine::Log("", engine::Log::Level::kError);
  return options;
}

// Connects to a server with its own connection.
struct Client {
  explicit Client(const ServerTask& server, const std::string& container = "")
      : connection(grpc::connect(server.address())), variables(*connection, container, kLong) {}
  void assign(const std::string& name, How how, float value) {
    variables.assign(name, how, {}, std::array{value});
  }
  float read(const std::string& name) { return variables.read(name).at(0); }
  std::unique_ptr<rpc::Connection> connection;
  VariableClient variables;
};

// Five servers run in one process. Each of a = 1, b = a + 2, c = a + b lies on the task to which it
// is pinned.
TEST(ServerTask, PinnedVariablesOfThreeTasksAddUpToFour) {
  std::vector<std::unique_ptr<ServerTask>> servers;
  for (int task = 0; task < 5; ++task) servers.push_back(server_task(quiet()));
  PlacementBuilder builder;
  for (const auto& [name, pin] : {std::pair{"a", "/task:0"}, {"b", "/task:1"}, {"c", "/task:2"}}) {
    const PlacementScope scope(builder, pin);
    builder.add({.name = name, .shape = {}, .bytes = sizeof(float)});
  }
  const VariablePlacement placement = builder.place(servers.size());
  const auto lies = [&](std::size_t variable) -> ServerTask& {
    return *servers[placement.shards.at(variable).server];
  };
  Client of_a(lies(0)), of_b(lies(1)), of_c(lies(2));
  of_a.assign("a", How::kInit, 1);
  of_b.assign("b", How::kInit, of_a.read("a") + 2);
  of_c.assign("c", How::kInit, of_a.read("a") + of_b.read("b"));
  EXPECT_EQ(Client(lies(2)).read("c"), 4.0f);
  for (std::size_t task = 0; task < servers.size(); ++task)
    EXPECT_EQ(servers[task]->store().containers().size(), task < 3 ? 1u : 0u) << task;
  EXPECT_THAT(refused([&] { Client(lies(0)).read("c"); }, Code::kInvalid), HasSubstr("'c'"));
}

TEST(ServerTask, AContainerOutlivesItsClientsUntilItIsReset) {
  const auto server = server_task(quiet());
  {
    Client first(*server, "simple");
    first.assign("x", How::kInit, 0);
    first.assign("x", How::kAdd, 1);
    EXPECT_EQ(first.read("x"), 1.0f);
  }
  {
    Client second(*server, "simple"), other(*server, "another");
    second.assign("x", How::kAdd, 1);
    EXPECT_EQ(second.read("x"), 2.0f);
    other.assign("x", How::kInit, 7);  // another container has its own names
    EXPECT_EQ(second.read("x"), 2.0f);
    EXPECT_EQ(second.variables.reset(), 1u);
    EXPECT_EQ(other.read("x"), 7.0f);
  }
  EXPECT_THAT(
      refused([&] { Client(*server, "simple").read("x"); }, Code::kInvalid),
      testing::AllOf(HasSubstr("'x'"), HasSubstr("'simple'"), HasSubstr(server->address())));
}

TEST(ServerTask, ArraysComeBackAsTheyWereSent) {
  const auto server = server_task(quiet());
  Client client(*server);
  client.variables.assign("m", How::kInit, {2, 3}, std::array{1.f, 2.f, 3.f, 4.f, 5.f, 6.f});
  EXPECT_THAT(client.variables.read("m"), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(refused(
                  [&] {
                    client.variables.assign("m", How::kSet, {3}, std::array{1.f, 2.f});
                  },
                  Code::kInvalid),
              HasSubstr("3 elements, and 2 values"));
  EXPECT_THAT(refused([&] { client.assign("m", How::kSet, 1); }, Code::kInvalid), HasSubstr("'m'"));
  const nlohmann::json status =
      nlohmann::json::parse(task_status(server->address(), {}, Clock::now() + kLong));
  EXPECT_EQ(status["containers"][0]["bytes"], 24);
}

// A refused request neither ends the server nor changes its state.
TEST(ServerTask, WhatIsRefusedChangesNothing) {
  const Certificates ours, others;
  ServerTaskOptions options = quiet();
  options.serve.tls = ours.files();
  const auto server = server_task(options);
  const auto connection =
      grpc::connect(server->address(), {.tls = ours.files(), .most_message_bytes = 256 << 20});
  const auto ask_it = [&](const std::string& method, const google::protobuf::MessageLite& head,
                          std::vector<rpc::Slice> body = {}) {
    rpc::call(*connection, method, message_of(head, std::move(body)), Clock::now() + kLong);
  };
  ask_it("Open", small_job_message());
  AssignRequest values;
  values.set_container("job");
  values.set_generation(1);
  values.add_parts()->set_end(8);
  Part& table = *values.add_parts();
  table.set_shard(1);
  table.set_end(18);
  ask_it("Assign", values, slices_of(std::vector<float>(26, 1.0f)));
  VariableClient client(*connection, "mine", kLong);
  client.assign("x", How::kInit, {}, std::array{5.0f});
  const std::uint64_t before = server->store().checksum();
  const auto unchanged = [&](const char* what) {
    EXPECT_EQ(server->store().checksum(), before) << what;
    EXPECT_THAT(client.read("x"), ElementsAre(5)) << what;
  };

  grpc::TlsFiles foreign = others.files();
  foreign.authority = ours.files().authority;  // it trusts the server
  for (const grpc::TlsFiles& files : {grpc::TlsFiles(), foreign}) {
    const auto stranger = grpc::connect(server->address(), {.tls = files});
    VariableClient of(*stranger, "mine", kLong);
    EXPECT_NE(
        refused([&] { of.assign("x", How::kForce, {}, std::array{6.0f}); }, Code::kUnavailable),
        "");
    EXPECT_NE(refused([&] { of.reset(); }, Code::kUnavailable), "");
    EXPECT_NE(refused([&] { of.done("over", false); }, Code::kUnavailable), "");
    unchanged("a stranger");
  }

  PushRequest push;
  push.set_container("job");
  push.set_generation(1);
  push.set_sequence(1);
  push.set_rate(0.5);
  push.set_last(true);
  push.add_parts()->set_end(8);
  const auto push_refused = [&](std::size_t floats) {
    const std::vector<float> gradient(floats, 1.0f);
    return refused([&] { ask_it("Push", push, slices_of(gradient)); }, Code::kInvalid);
  };
  EXPECT_NE(push_refused(7), "");  // the size of the body is wrong
  push.mutable_parts(0)->set_end(9);
  EXPECT_NE(push_refused(9), "");  // beyond the shard
  push.mutable_parts(0)->set_shard(7);
  EXPECT_NE(push_refused(9), "");  // there is no such shard
  unchanged("a push of a wrong shape");
  EXPECT_THAT(refused([&] { client.assign("y", How::kAdd, {}, std::array{1.0f}); }, Code::kInvalid),
              HasSubstr("'y'"));
  EXPECT_THAT(refused([&] { client.read("y"); }, Code::kInvalid), HasSubstr("'y'"));
  EXPECT_NE(refused(
                [&] {
                  client.assign("x", How::kSet, {2}, std::array{1.f, 2.f});
                },
                Code::kInvalid),
            "");
  unchanged("an unknown variable");
  const std::vector<float> large(std::size_t(20) << 20);  // 80 MiB
  EXPECT_THAT(
      refused([&] { client.assign("large", How::kInit, {large.size()}, large); }, Code::kInvalid),
      HasSubstr("larger"));
  unchanged("a large message");
  const auto to = collectives::tcp::endpoints(server->address()).at(0);
  for (int i = 0; i < 100; ++i) {
    const collectives::tcp::Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::connect(socket.file(), reinterpret_cast<const sockaddr*>(&to.address), to.length),
              0);
    const std::string garbage(std::size_t(10 + i), char(i * 37));
    ::send(socket.file(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  unchanged("garbage");
  push.mutable_parts(0)->set_shard(0);
  push.mutable_parts(0)->set_end(8);
  ask_it("Push", push, slices_of(std::vector<float>(8, 1.0f)));
  EXPECT_NE(server->store().checksum(), before) << "what is right still goes";
}

TEST(ServerTask, ListensWhereAPortIsHeldForIt) {
  const HeldPort held(true), other(true);
  EXPECT_NE(held.port(), other.port());
  ServerTaskOptions options = quiet();
  options.serve.address = fmt::format("127.0.0.1:{}", held.port());
  for (int life = 0; life < 2; ++life) {
    const auto server = server_task(options);
    EXPECT_EQ(server->address(), options.serve.address);
    EXPECT_NE(refused([&] { server_task(options); }, Code::kIo), "") << "one at a time";
    Client(*server).assign("x", How::kInit, 1);
  }
}

TEST(ServerTask, JoinEndsWhenTheChiefSaysSo) {
  const auto server = server_task(quiet());
  EXPECT_FALSE(server->join(Clock::now()).has_value());
  std::thread chief([&] { Client(*server).variables.done("the last step was made", true); });
  const auto end = server->join(Clock::now() + kLong);
  chief.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->why, "the last step was made");
  EXPECT_TRUE(end->failed);
}

TEST(ServerTask, WhoSaysThatTheJobIsOverIsAnswered) {
  for (int i = 0; i < 200; ++i) {
    auto server = server_task(quiet());
    Client chief(*server);
    std::thread task([&] {
      EXPECT_TRUE(server->join(Clock::now() + kLong).has_value());
      server.reset();  // as a process would end
    });
    EXPECT_NO_THROW(chief.variables.done("over", false));
    task.join();
  }
}

TEST(ServerTask, JoinEndsWithASignal) {
  const auto server = server_task(quiet());
  std::atomic<int> signal = 0;
  std::thread other([&] {
    EXPECT_TRUE(await(others_sleep));
    signal = 15;
  });
  const auto begun = Clock::now();
  EXPECT_FALSE(server->join(begun + kLong, &signal).has_value());
  EXPECT_LT(Clock::now(), begun + kLong / 2);
  other.join();
}

TEST(ServerTask, JoinEndsAfterASilenceWhereItWasToldTo) {
  ServerTaskOptions options = quiet();
  options.life = 300ms;
  const auto server = server_task(options);
  // The first client may come at any time.
  EXPECT_FALSE(server->join(Clock::now() + 4 * options.life).has_value());
  Client(*server).assign("y", How::kInit, 0);
  // Status requests do not keep the server alive.
  std::atomic<bool> over = false;
  std::thread watcher([&] {
    while (!over) task_status(server->address(), {}, Clock::now() + kLong);
  });
  EXPECT_THAT(refused([&] { server->join(Clock::now() + kLong); }, Code::kTimeout),
              HasSubstr(server->address() + " heard nothing"));
  over = true;
  watcher.join();
  // Other calls keep the server alive.
  Client client(*server);
  client.assign("x", How::kInit, 0);
  for (const auto until = Clock::now() + 3 * options.life; Clock::now() < until;) {
    client.assign("x", How::kAdd, 1);
    EXPECT_FALSE(server->join(Clock::now() + 10ms).has_value());
  }
}

// If a job is asked to end, its servers wait until it has saved their state and tells them.
TEST(ServerTask, ThatIsAskedToEndWaitsForTheJob) {
  ServerTaskOptions options = quiet();
  options.shutdown_timeout = kLong;
  std::promise<void> asked;
  options.log = engine::Log("", engine::Log::Level::kWarning,
                            [&](auto, std::string_view) { asked.set_value(); });
  const auto server = server_task(options);
  const std::atomic<int> interrupt = SIGTERM;
  EXPECT_FALSE(server->join(Clock::now() + kLong, &interrupt).has_value()) << "nobody came yet";
  Client client(*server);
  client.assign("x", How::kInit, 0);
  std::thread chief([&] {
    EXPECT_EQ(asked.get_future().wait_for(kLong), std::future_status::ready);
    client.assign("x", How::kAdd, 1);
    client.variables.done("all is saved", false);
  });
  const auto end = server->join(Clock::now() + kLong, &interrupt);
  chief.join();
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->why, "all is saved");
}

TEST(ServerTask, ThatIsAskedToEndWaitsNoLongerThanItWasGiven) {
  ServerTaskOptions options = quiet();
  options.shutdown_timeout = 300ms;
  const auto server = server_task(options);
  const std::atomic<int> interrupt = SIGTERM;
  Client client(*server);
  std::atomic<bool> over = false;
  std::thread training([&] {
    while (!over) client.assign("x", How::kForce, 1);
  });
  const auto begin = Clock::now();
  EXPECT_FALSE(server->join(Clock::now() + kLong, &interrupt).has_value());
  EXPECT_LT(Clock::now() - begin, kLong / 2);
  over = true;
  training.join();
}

TEST(ServerTask, AStatusThatNobodyAnswersNamesTheAddress) {
  std::string address;
  {
    const auto server = server_task(quiet());
    address = server->address();
    EXPECT_EQ(task_status(address, {}, Clock::now() + kLong), R"({"containers":[]})");
  }
  EXPECT_THAT(refused([&] { task_status(address, {}, Clock::now() + kLong); }, Code::kUnavailable),
              HasSubstr(address));
}

}  // namespace server_task_test
}  // namespace lockstep::test
