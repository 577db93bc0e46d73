// SPDX-License-Identifier: MIT
// lockstep serve: runs one server of a parameter server job until the chief reports the end of the
// job. With --status it prints the status of running tasks.
//
// Exit codes of a server: 0 after the job's end; 75 if the job failed or nobody called for --life;
// 128 + N after signal N. It obeys a signal if nobody has called for five seconds, the job is over,
// or 20 seconds have passed. With --restarts it runs as the child of a supervisor
// (strategies/session/supervisor.h), which ends with 75 after the last restart.
//
// JSON: a server prints {"address"} at its start and {"failed", "why"} at the job's end. --status
// prints {"tasks": [{"address", "status" or "error"}]}, with each status as the task sent it
// (strategies/parameter_server/server/shard_status.h). The exit code is 75 if a task does not
// answer within --deadline.
#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "collectives/cost/size_rules.h"
#include "engine/base/log.h"
#include "strategies/parameter_server/cluster/tf_config.h"
#include "strategies/parameter_server/rpc/host_port.h"
#include "strategies/session/server_task.h"
#include "strategies/session/supervisor.h"
#include "strategies/session/task_status.h"
#include "tools/bounds.h"
#include "tools/command.h"
#include "tools/exit_codes.h"
#include "tools/help.h"
#include "tools/leaving.h"
#include "tools/signals.h"
#include "tools/standard_streams.h"
#include "tools/status_text.h"
#include "tools/tls_flags.h"
#include "tools/verbosity.h"

namespace lockstep::tools {
namespace {

using engine::Log;
using engine::require;

constexpr double kMostSeconds = 1e6;
constexpr std::int64_t kMostRestarts = 1'000'000;
constexpr std::string_view kCluster = "cluster";

struct ServeFlags {
  std::string address, status, memory_limit = "0";
  strategies::grpc::TlsFiles tls;
  bool insecure = false, json = false;
  double life = 0, deadline = 5;
  int restarts = 0;
  Verbosity verbosity;
};

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(std::int64_t(seconds * 1e3));
}

strategies::ClusterConfig tf_config(const Log& log) {
  const char* text = strategies::tf_config_of_environment();
  require(text != nullptr, "--status cluster: there is no TF_CONFIG that says what the cluster is");
  auto config = strategies::parse_tf_config(text, strategies::ClusterUse::kParameterServer);
  for (const std::string& warning : config.warnings) log.warning("{}", warning);
  return config;
}

// Returns the address to listen on: as requested, else as in the cluster.
std::string address_of(const ServeFlags& f, const Log& log) {
  if (!f.address.empty()) return f.address;
  if (strategies::tf_config_of_environment() == nullptr)
    return strategies::grpc::ServeOptions().address;
  const strategies::ClusterConfig config = tf_config(log);
  require(config.task.role == strategies::Role::kServer,
          "TF_CONFIG: this task is {}, and lockstep serve is for tasks of job \"ps\": start it "
          "with lockstep train, or say --address HOST:PORT",
          to_string(task_name(config.spec, config.task)));
  return strategies::address_of(config.spec, config.task);
}

std::vector<std::string> asked(const ServeFlags& f, const Log& log) {
  if (f.status == kCluster) return tf_config(log).spec.servers;
  std::vector<std::string> addresses;
  for (std::size_t at = 0; at <= f.status.size();) {
    const std::size_t comma = std::min(f.status.find(',', at), f.status.size());
    addresses.push_back(f.status.substr(at, comma - at));
    at = comma + 1;
  }
  return addresses;
}

// Prints the status of all tasks. A task that does not answer gets a line with the error, so that
// the others are shown all the same.
int status(const ServeFlags& f, const Log& log) {
  const std::vector<std::string> addresses = asked(f, log);
  nlohmann::json tasks = nlohmann::json::array();
  std::string text;
  int code = kDone;
  for (const std::string& address : addresses) {
    nlohmann::json task{{"address", address}};
    try {
      const std::string came =
          strategies::task_status(address, f.tls, engine::Clock::now() + milliseconds(f.deadline));
      text += status_text(address, came);
      task["status"] = nlohmann::json::parse(came);
    } catch (const engine::Error& error) {
      if (addresses.size() == 1 || exit_code(error.code()) != kTryAgain) throw;
      text += fmt::format("{}: does not answer: {}\n", address, error.what());
      task["error"] = error.what();
      code = kTryAgain;
    }
    tasks.push_back(std::move(task));
  }
  print(f.json ? nlohmann::json{{"tasks", tasks}}.dump() + "\n" : text);
  return code;
}

// Runs the server and starts it again at the same address, so that clients find it.
int supervise(const ServeFlags& f, const Program& program, const Log& log) {
  const std::string address = address_of(f, log);
  require(strategies::parse_host_port(address, strategies::kAnyPort).port != strategies::kAnyPort,
          "--restarts needs a fixed port in --address; {} picks a new one at each start", address);
  strategies::Supervisor supervisor(log);
  return supervisor.run(program.argv, {.name = "the server at " + address, .restarts = f.restarts});
}

int serve_alone(const ServeFlags& f, const Log& log) {
  const std::atomic<int>& interrupt = watch_signals();
  strategies::ServerTaskOptions options;
  options.serve.address = address_of(f, log);
  options.serve.tls = f.tls;
  options.serve.insecure = f.insecure;
  options.most_bytes = collectives::parse_size(f.memory_limit);
  options.life = milliseconds(f.life);
  options.log = log;
  const auto task = strategies::server_task(options);
  log.info("serving at {}{}", task->address(), f.tls.none() ? ", without TLS" : ", by mutual TLS");
  if (f.json) print(nlohmann::json{{"address", task->address()}}.dump() + "\n");
  const auto end = task->join(engine::Clock::time_point::max(), &interrupt);
  if (!end) {
    log.info("stopped by {}", signal_name(interrupt));
    return exit_code_of_signal(interrupt);
  }
  if (f.json) print(nlohmann::json{{"failed", end->failed}, {"why", end->why}}.dump() + "\n");
  if (end->failed) {
    complain(fmt::format("the chief ended the job: {}", end->why));
    return kTryAgain;
  }
  log.info("the job is over: {}", end->why);
  return kDone;
}

}  // namespace

Command add_serve(CLI::App& app) {
  auto f = std::make_shared<ServeFlags>();  // lives as long as the parser's callbacks
  app.option_defaults()->group("Server");
  auto* address = app.add_option("--address", f->address,
                                 "HOST:PORT to listen on; port 0: a free one (default: this task's "
                                 "address in TF_CONFIG, else 127.0.0.1:0)");
  auto* life = app.add_option("--life", f->life,
                              "seconds without a call after which the server ends; with an "
                              "error; before the first call ten times as many; 0: never")
                   ->check(number_from(0, kMostSeconds))
                   ->capture_default_str();
  auto* limit = app.add_option("--memory-limit", f->memory_limit,
                               "largest memory of all that clients create; 0: the memory that is "
                               "free at the start, less a reserve")
                    ->check(byte_size(0, kMostMemory))
                    ->capture_default_str();
  auto* restarts = app.add_option("--restarts", f->restarts,
                                  "restarts of a server that was killed; it is then empty, and has "
                                  "the same address")
                       ->check(whole_number(0, kMostRestarts))
                       ->capture_default_str();
  app.option_defaults()->group("Security");
  declare(app, f->tls);
  auto* insecure =
      app.add_flag("--insecure", f->insecure, "let other hosts connect to the address without TLS");
  app.option_defaults()->group("Status");
  auto* status_of =
      app.add_option("--status", f->status,
                     "ask the tasks at these addresses (A or A,B,...) for their "
                     "status instead of serving; 'cluster': all servers of TF_CONFIG");
  for (auto* flag : {address, insecure, life, limit, restarts}) status_of->excludes(flag);
  app.add_option("--deadline", f->deadline, "seconds that --status waits for each answer")
      ->check(number_above(0, kMostSeconds))
      ->needs(status_of)
      ->capture_default_str();
  app.option_defaults()->group("Output");
  app.add_flag("--json", f->json,
               "print JSON instead of text: with --status one object; as a server one object at "
               "the start and one at the end of the job");
  declare_quiet(app, f->verbosity);
  end_help(app,
           "  lockstep serve --address 127.0.0.1:2222\n"
           "  lockstep serve --status 127.0.0.1:2222 --json");
  return [f, status_of](const Program& program) {
    const Log log("server", f->verbosity.level());
    if (status_of->count() > 0) return status(*f, log);
    const bool alone = f->restarts == 0 || strategies::supervised();
    return alone ? serve_alone(*f, log) : supervise(*f, program, log);
  };
}

}  // namespace lockstep::tools
