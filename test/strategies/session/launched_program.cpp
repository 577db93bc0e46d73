// SPDX-License-Identifier: MIT
// A program for launched_test.py: tasks that mpirun starts, two of them servers. Each task prints
// its place and how often it was started.
//
// usage: launched_program PART
//   job       the chief sees each server die and restart at the same address
//   chief     the chief dies
//   cause     the chief reports its failure to the others, and ends with code 5 some time later
//   servers   there are too many servers
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "strategies/grpc/connection.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/parameter_server/rpc/retry.h"
#include "strategies/parameter_server/worker/variable_client.h"
#include "strategies/session/launched_task.h"
#include "strategies/session/server_task.h"
#include "strategies/session/supervisor.h"

namespace {

using namespace lockstep::strategies;
using lockstep::engine::Clock;
using lockstep::engine::Error;
using How = NamedVariables::How;

constexpr std::chrono::seconds kLong{60};

// Prints a line with a single write.
void say(const std::string& line) {
  const std::string whole = line + "\n";
  std::fputs(whole.c_str(), stdout);
  std::fflush(stdout);
}

// The name of a container that makes a server die in its first life.
constexpr const char* kEnd = "end";

bool holds_end(const ShardStore& store) {
  return std::ranges::any_of(
      store.containers(), [](const ShardStore::ContainerState& one) { return one.name == kEnd; });
}

int serve(const std::string& address, int start) {
  ServerTaskOptions options;
  options.serve.address = address;
  const auto task = server_task(options);
  const auto until = Clock::now() + kLong;
  while (Clock::now() < until) {
    const auto end = task->join(Clock::now() + std::chrono::milliseconds(10));
    if (end) return end->failed ? kTryAgain : 0;
    if (start == 0 && holds_end(task->store())) raise(SIGKILL);
  }
  return 4;
}

// Returns whether the server has lost `name` because another process took its place.
bool has_lost(VariableClient& client, const char* name) {
  try {
    client.read(name);
    return false;
  } catch (const Error& error) {
    return error.code() == lockstep::engine::Code::kInvalid;
  }
}

void lead(const ClusterSpec& cluster) {
  for (const std::string& address : cluster.servers) {
    rpc::Retry server(lockstep::strategies::grpc::connect(address));
    VariableClient client(server, "", kLong);
    client.assign("x", How::kForce, {}, std::array{1.0f});
    // The server may die before it answers. The call is then repeated at its successor, where it
    // does no harm.
    VariableClient(server, kEnd, kLong).assign("x", How::kForce, {}, std::array{1.0f});
    const auto until = Clock::now() + kLong;
    while (!has_lost(client, "x")) {
      lockstep::engine::require(Clock::now() < until, "{} does not die", address);
    }
    client.assign("x", How::kInit, {}, std::array{2.0f});
    say(fmt::format("{} came back with {}", address, client.read("x").at(0)));
    client.done("over", false);
  }
}

int fail(const ClusterSpec& cluster) {
  for (const std::string& address : cluster.servers) {
    rpc::Retry server(lockstep::strategies::grpc::connect(address));
    VariableClient(server, "", kLong).done("no data", true);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  return 5;
}

int task(int start, const std::string& part) {
  const ClusterConfig config =
      parse_tf_config(std::getenv("TF_CONFIG"), ClusterUse::kParameterServer);
  const std::string address = address_of(config.spec, config.task);
  say(fmt::format("{} start {} at {} in {:x}", to_string(task_name(config.spec, config.task)),
                  start, address, hash_of(config.spec)));
  if (config.task.role == Role::kServer) return serve(address, start);
  if (config.task.role == Role::kChief) {
    if (part == "chief") raise(SIGKILL);
    if (part == "cause") return fail(config.spec);
    lead(config.spec);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const std::string part = argv[1];
  try {
    if (const auto start = supervised()) return task(*start, part);
    return run_launched_task(argv, {.servers = part == "servers" ? 4 : 2});
  } catch (const Error& error) {
    say(fmt::format("failed: {}", error.what()));
    return 3;
  }
}
