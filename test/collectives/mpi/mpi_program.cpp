// SPDX-License-Identifier: MIT
// Runs one process of a job under mpirun. The first argument selects its part:
//   exchange            all-gathers of several lengths, hosts, topology; exit code 0 if right
//   die-before RANK     that rank is killed before it does anything; the others start MPI
//   stop-before RANK    that rank is stopped instead
//   die-within RANK     that rank is killed while it is in MPI_Init, which the others enter late
//   stay-away RANK      that rank never starts MPI, but lives
//   no-gather RANK      that rank starts MPI and does not come to the exchange
//   other-exchange RANK that rank exchanges other things than the others
//   abandon RANK        that rank never ends its bootstrap; the others know that, and end theirs
//   leave-early RANK    that rank ends orderly after the watch was released; the others go on
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "collectives/mpi/mpi_bootstrap.h"
#include "collectives/mpi/siblings.h"
#include "collectives/mpi/start_watch.h"
#include "collectives/topology/topology.h"
#include "engine/base/error.h"

namespace {

using namespace std::chrono_literals;
using namespace lockstep::collectives;
using lockstep::engine::Code;
using lockstep::engine::Error;

void check(bool ok, const char* what) {
  if (ok) return;
  fmt::print(stderr, "wrong: {}\n", what);
  _exit(1);
}

std::string value_of(int process, std::size_t length) {
  return std::string(length, char('a' + process));
}

// Returns the place that Open MPI's variables say.
mpi::Place place() {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? 1 : std::atoi(text);
  };
  return {mpi::rank_here().value_or(0), number("OMPI_COMM_WORLD_SIZE"),
          number("OMPI_COMM_WORLD_LOCAL_SIZE")};
}

void exchange(mpi::StartWatch& watch) {
  const auto bootstrap = mpi::open({.deadline = 30s});
  const int me = bootstrap->process(), all = bootstrap->processes();
  check(mpi::rank_here() == me, "launcher and bootstrap differ");
  check(bootstrap->description().rfind("Open MPI 4", 0) == 0 ||
            bootstrap->description().rfind("Open MPI 5", 0) == 0,
        bootstrap->description().c_str());
  check(bootstrap->hosts() == std::vector<int>(std::size_t(all), 0), "hosts");
  for (const std::size_t unit :
       {std::size_t(0), std::size_t(1), std::size_t(1000), (std::size_t(1) << 20) / 3}) {
    const auto values =
        bootstrap->all_gather(value_of(me, unit * std::size_t(me + 1) % ((1u << 20) + 1)), "test");
    check(int(values.size()) == all, "number of values");
    for (int p = 0; p < all; ++p) {
      check(values[std::size_t(p)] == value_of(p, unit * std::size_t(p + 1) % ((1u << 20) + 1)),
            "a value");
    }
  }
  watch.release();
  const auto binary = bootstrap->all_gather(std::string("\0\1", 2), "bytes");
  for (const std::string& b : binary) check(b == std::string("\0\1", 2), "bytes of any value");
  try {
    bootstrap->all_gather(std::string((1u << 20) + 1, 'x'), "far too much");
    check(false, "more than 1 MiB was taken");
  } catch (const Error& error) {
    check(error.code() == Code::kInvalid, error.what());
  }
  const auto replicas = std::size_t(me + 1);  // process p has p + 1
  const Topology topology = discover(*bootstrap, std::vector<std::string>(replicas, "cpu:0"));
  check(topology.hosts.size() == 1 && int(topology.processes.size()) == all, "topology");
  check(int(topology.ranks.size()) == all * (all + 1) / 2, "topology: ranks");
  check(topology.ranks_of_process(me).size() == replicas, "topology: ranks of a process");
  check(topology.processes[std::size_t(me)].pid == getpid(), "topology: pid");
  const auto equal = bootstrap->all_gather(to_json(topology), "topology");
  for (const std::string& text : equal)
    check(topology_from_json(text) == topology, "topologies differ");
  bootstrap->finish();
  bootstrap->finish();  // a second call is harmless
}

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

int play(const std::string& part, int rank) {
  const bool chosen = mpi::rank_here() == rank;
  if (part == "exchange") {
    mpi::StartWatch watch(place());
    exchange(watch);
    return 0;
  }
  if (part == "die-before" && chosen) die();
  if (part == "stop-before" && chosen) raise(SIGSTOP);
  if (part == "stay-away" && chosen) {
    std::this_thread::sleep_for(4s);
    return 0;
  }
  mpi::StartWatch watch(place());
  if (part == "die-within") {
    if (chosen) {
      std::jthread([] {
        std::this_thread::sleep_for(300ms);
        die();
      }).detach();
    } else {
      std::this_thread::sleep_for(600ms);
    }
  }
  const bool brief = part == "stay-away" || part == "stop-before";
  const auto bootstrap = mpi::open({.deadline = brief ? 1500ms : 20000ms});
  bootstrap->all_gather(std::to_string(getpid()), "pids");
  watch.release();
  if (part == "leave-early") bootstrap->all_gather("", "releases");  // no rank leaves before
  if (part == "other-exchange") {
    // No rank leaves before all have printed their error.
    try {
      bootstrap->all_gather("x", chosen ? "apples" : "pears");
    } catch (const Error& error) {
      fmt::print(stderr, "rank {}: error {}: {}\n", bootstrap->process(), name(error.code()),
                 error.what());
    }
    bootstrap->all_gather("", "what they were told");
    _exit(0);
  }
  if (part == "abandon") {
    const auto joined = mpi::open({.deadline = 20000ms});  // joins the running MPI
    if (chosen) std::this_thread::sleep_for(3s);
    if (!chosen) {
      joined->abandon({Code::kPeerLost, "one is gone"});
      joined->finish();
      fmt::print(stderr, "rank {} has ended\n", bootstrap->process());
    }
    _exit(0);
  }
  if (part == "no-gather" || part == "leave-early") {
    if (chosen) {
      std::this_thread::sleep_for(part == "no-gather" ? 3s : 0s);
      _exit(0);
    }
    if (part == "leave-early") {
      std::this_thread::sleep_for(500ms);
      fmt::print(stderr, "rank {} goes on\n", bootstrap->process());
      _exit(0);
    }
    const auto impatient = mpi::open({.deadline = 500ms});  // joins the running MPI
  }
  _exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return play(argc > 1 ? argv[1] : "exchange", argc > 2 ? std::atoi(argv[2]) : -1);
  } catch (const Error& error) {
    fmt::print(stderr, "rank {}: error {}: {}\n", mpi::rank_here().value_or(-1), name(error.code()),
               error.what());
    std::fflush(stderr);
    _exit(3);
  }
}
