// SPDX-License-Identifier: MIT
// The tasks of a job, with their names, roles and addresses.
#include "strategies/parameter_server/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/base/error.h"
#include "strategies/parameter_server/cluster/text_difference.h"
#include "strategies/parameter_server/rpc/host_port.h"

namespace lockstep::test {
namespace cluster_test {

using namespace strategies;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const engine::Error& error) {
    EXPECT_EQ(error.code(), engine::Code::kInvalid);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "no error";
}

// Returns the roles of all ranks, for example "chief 0, worker 1, ps 0".
std::string roles(int size, int servers) {
  std::string text;
  for (int rank = 0; rank < size; ++rank) {
    const ClusterTask task = role_of_rank(rank, size, servers);
    text += fmt::format("{}{} {}", rank == 0 ? "" : ", ", name(task.role), task.number);
  }
  return text;
}

TEST(Cluster, TheLastRanksAreServersAndTheFirstIsTheChief) {
  EXPECT_EQ(roles(2, 1), "chief 0, ps 0");
  EXPECT_EQ(roles(3, 1), "chief 0, worker 1, ps 0");
  EXPECT_EQ(roles(3, 2), "chief 0, ps 0, ps 1");
  EXPECT_EQ(roles(6, 2), "chief 0, worker 1, worker 2, worker 3, ps 0, ps 1");
  EXPECT_EQ(roles(6, 5), "chief 0, ps 0, ps 1, ps 2, ps 3, ps 4");
}

TEST(Cluster, AServerTooManyOrTooFewIsRefused) {
  EXPECT_EQ(error_of([] { role_of_rank(0, 6, 6); }),
            "beside 6 servers of 6 ranks none is left to train: start at least 7, or ask for fewer "
            "servers");
  EXPECT_THAT(error_of([] { role_of_rank(0, 1, 1); }), HasSubstr("of 1 rank none is left"));
  EXPECT_THAT(error_of([] { role_of_rank(0, 6, 100); }), HasSubstr("start at least 101"));
  for (const int servers : {0, -1})
    EXPECT_EQ(error_of([&] { role_of_rank(0, 6, servers); }),
              fmt::format("{} servers were asked for: a parameter server strategy needs at least 1",
                          servers));
  EXPECT_EQ(error_of([] { role_of_rank(6, 6, 2); }), "there is no rank 6 of 6 ranks");
  EXPECT_EQ(error_of([] { role_of_rank(-1, 6, 2); }), "there is no rank -1 of 6 ranks");
}

// The cluster of a launcher's ranks gives each rank the role that the rank took before addresses
// were known.
TEST(Cluster, RanksHaveTheirRolesAndAddresses) {
  for (int size = 2; size < 8; ++size) {
    std::vector<std::string> addresses;
    for (int rank = 0; rank < size; ++rank) addresses.push_back(fmt::format("n{}:{}", rank, 99));
    for (int servers = 1; servers < size; ++servers) {
      const ClusterSpec spec = cluster_of_ranks(addresses, servers);
      EXPECT_EQ(spec.servers.size(), servers);
      for (int rank = 0; rank < size; ++rank) {
        const ClusterTask task = role_of_rank(rank, size, servers);
        EXPECT_EQ(address_of(spec, task), addresses[rank]);
      }
    }
  }
  EXPECT_EQ(to_string(cluster_of_ranks(std::vector<std::string>{"a:1", "a:2", "b:1"}, 1)),
            "/job:worker/task:0 a:1\n/job:worker/task:1 a:2\n/job:ps/task:0 b:1\n");
  EXPECT_THAT(error_of([] {
                cluster_of_ranks(std::vector<std::string>{"a:1", "a:2"}, 2);
              }),
              HasSubstr("beside 2 servers"));
  EXPECT_EQ(error_of([] {
              cluster_of_ranks(std::vector<std::string>{"a:1", "a"}, 1);
            }),
            "the addresses of the launcher's ranks: /job:ps/task:0: 'a' is no address: it has no "
            "port; write HOST:PORT, e.g. node1:2222 or [::1]:2222");
}

TEST(Cluster, AChiefOfItsOwnJobShiftsTheNamesOfWorkers) {
  const ClusterSpec own{{"a:1", "b:1", "c:1"}, {"s:1"}, true};
  EXPECT_EQ(to_string(own),
            "/job:chief/task:0 a:1\n/job:worker/task:0 b:1\n/job:worker/task:1 c:1\n"
            "/job:ps/task:0 s:1\n");
  const ClusterSpec shared{{"a:1", "b:1", "c:1"}, {"s:1"}, false};
  EXPECT_EQ(to_string(task_name(shared, {Role::kChief, 0})), "/job:worker/task:0");
  EXPECT_EQ(to_string(task_name(shared, {Role::kWorker, 2})), "/job:worker/task:2");
  EXPECT_EQ(to_string(task_name(shared, {Role::kEvaluator, 1})), "/job:evaluator/task:1");
  EXPECT_EQ(address_of(shared, {Role::kEvaluator, 1}), "");
}

TEST(Cluster, TwoTasksWithOneAddressAreRefused) {
  EXPECT_EQ(error_of([] {
              checked({{"a:1", "b:2"}, {"A:01"}, false}, "TEST");
            }),
            "TEST: /job:worker/task:0 and /job:ps/task:0 have the same address a:1: each task "
            "needs one of its own");
  EXPECT_EQ(error_of([] {
              checked({{}, {"a:1"}, false}, "TEST");
            }),
            "TEST: nobody trains: there must be at least one task in job \"worker\", or a "
            "\"chief\"");
  EXPECT_EQ(checked({{"Node1:0080", "[::1]:2"}, {"node1:81"}, false}, "TEST"),
            (ClusterSpec{{"node1:80", "[::1]:2"}, {"node1:81"}, false}));
}

TEST(Cluster, ClustersThatDifferAreBothShown) {
  const ClusterSpec mine{{"a:1", "b:1"}, {"s:1"}, false};
  ClusterSpec theirs = mine;
  EXPECT_EQ(hash_of(mine), hash_of(theirs));
  theirs.servers = {"s:2"};
  EXPECT_NE(hash_of(mine), hash_of(theirs));
  EXPECT_EQ(text_difference("clusters differ", {"the chief", to_string(mine)},
                            {"worker 1", to_string(theirs)}),
            "clusters differ: in line 3 the chief has '/job:ps/task:0 s:1', worker 1 has "
            "'/job:ps/task:0 s:2'\n"
            "the chief:\n/job:worker/task:0 a:1\n/job:worker/task:1 b:1\n/job:ps/task:0 s:1\n"
            "worker 1:\n/job:worker/task:0 a:1\n/job:worker/task:1 b:1\n/job:ps/task:0 s:2");
  for (const ClusterSpec& other :
       {ClusterSpec{{"b:1", "a:1"}, {"s:1"}, false}, ClusterSpec{{"a:1", "b:1"}, {"s:1"}, true},
        ClusterSpec{{"a:1", "b:1", "s:1"}, {}, false}})
    EXPECT_NE(hash_of(mine), hash_of(other));
}

TEST(HostPort, AddressesAreReadBackAsTheyAreWritten) {
  for (const char* text :
       {"a:1", "node-1.cluster_2.local:65535", "10.0.0.1:2222", "[::1]:1", "[fe80::1%eth0]:99"})
    EXPECT_EQ(to_string(parse_host_port(text)), text);
  EXPECT_EQ(parse_host_port("[FE80::1]:07"), (HostPort{"fe80::1", 7}));
}

TEST(HostPort, WhatIsNoAddressSaysWhy) {
  const struct {
    std::string text;
    const char* why;
  } rows[] = {
      {"", "it has no port"},
      {"node1", "it has no port"},
      {"[::1]", "it has no port"},
      {":2222", "it has no host"},
      {"[::1:22", "its bracket is not closed"},
      {"[::1]x:22", "its port does not follow the bracket"},
      {"::1:22", "a host with colons stands in brackets"},
      {"[node1]:22", "what stands in brackets is no IPv6 address"},
      {"http://a:1", "leave out 'http://'"},
      {"grpc://[::1]:1", "leave out 'grpc://'"},
      {"a/b:1", "its host has characters that no host has"},
      {"a b:1", "its host has characters that no host has"},
      {"a:", "its port is not a number from 1 to 65535"},
      {"a:0", "its port is not a number from 1 to 65535"},
      {"a:65536", "its port is not a number from 1 to 65535"},
      {"a:-1", "its port is not a number from 1 to 65535"},
      {"a:1 ", "its port is not a number from 1 to 65535"},
      {"a:99999999999999999999", "its port is not a number from 1 to 65535"},
  };
  for (const auto& row : rows)
    EXPECT_EQ(error_of([&] { parse_host_port(row.text); }),
              fmt::format("'{}' is no address: {}; write HOST:PORT, e.g. node1:2222 or [::1]:2222",
                          row.text, row.why));
  const std::string garbage(65'536, '\n');
  EXPECT_LT(error_of([&] { parse_host_port(garbage); }).size(), 250u);
}

TEST(HostPort, WhoServesMayLeaveThePortOpen) {
  EXPECT_EQ(parse_host_port("a:0", kAnyPort), (HostPort{"a", 0}));
  EXPECT_EQ(parse_host_port("a:7", kAnyPort), (HostPort{"a", 7}));
  EXPECT_THAT(error_of([] { parse_host_port("a:65536", kAnyPort); }),
              HasSubstr("its port is not a number from 0 to 65535"));
}

TEST(HostPort, LoopbackIsWhatNoOtherHostReaches) {
  for (const char* text : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1", "LOCALHOST:1"})
    EXPECT_TRUE(parse_host_port(text).loopback()) << text;
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "128.0.0.1:1", "node7:1",
                           "localhost.example:1", "[fe80::1%lo]:1"})
    EXPECT_FALSE(parse_host_port(text).loopback()) << text;
}

}  // namespace cluster_test
}  // namespace lockstep::test
