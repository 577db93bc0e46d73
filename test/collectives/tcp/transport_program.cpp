// SPDX-License-Identifier: MIT
// Runs one process of a job under mpirun, whose ranks (two per process) exchange messages as if
// each process were a host. Usage: transport_program tcp|mpi PART, with these parts:
// - messages: all ranks exchange many lengths and tags, with two threads per process; exit code 0
//   if all is right;
// - ring: executors run the sums of a ring over the transport; exit code 0 if they are exact;
// - lengths: sender and receiver name different lengths, and the receiver must notice;
// - tell: rank 0 stops and says why, and its peers must receive the reason;
// - late: the last process posts nothing, and the others must be told at the deadline.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "collectives/algorithms/algorithms.h"
#include "collectives/mpi/mpi_bootstrap.h"
#include "collectives/mpi/mpi_transport.h"
#include "collectives/run/executor.h"
#include "collectives/tcp/tcp_transport.h"
#include "engine/device/buffer.h"
#include "engine/reference/reference_device.h"

namespace {

using namespace std::chrono_literals;
using namespace lockstep::collectives;
using lockstep::engine::Code;
using lockstep::engine::Error;

using Transports = std::vector<std::unique_ptr<Transport>>;

[[noreturn]] void right() {
  fmt::print("right\n");
  std::fflush(stdout);
  _exit(0);
}

void check(bool ok, const std::string& what) {
  if (ok) return;
  fmt::print(stderr, "wrong: {}\n", what);
  _exit(1);
}

struct Job {
  std::string kind;
  std::unique_ptr<Bootstrap> bootstrap;
  int each = 2;  // ranks per process
  int me() const { return bootstrap->process(); }
  int ranks() const { return each * bootstrap->processes(); }
  std::vector<int> mine() const {
    std::vector<int> ranks;
    for (int i = 0; i < each; ++i) ranks.push_back(me() * each + i);
    return ranks;
  }
  std::vector<int> process() const {
    std::vector<int> all;
    for (int rank = 0; rank < ranks(); ++rank) all.push_back(rank / each);
    return all;
  }
  // Connects the ranks of this process with all ranks of other processes.
  Transports connect() const {
    std::vector<std::pair<int, int>> pairs;
    for (const int rank : mine())
      for (int peer = 0; peer < ranks(); ++peer)
        if (peer / each != me()) pairs.emplace_back(rank, peer);
    if (kind == "mpi") return bootstrap->transports(process(), pairs, "");
    TcpFabric fabric;
    const auto all = bootstrap->all_gather(fabric.address(), "addresses");
    std::vector<std::string> address;
    for (const int p : process()) address.push_back(all[std::size_t(p)]);
    return fabric.connect(mine(), pairs, address, {"test", std::string(32, 'k')}, 30s);
  }
};

// Moves the transport until the request is complete. Throws Error(kTimeout) after `most`.
void wait_for(Transport& transport, int request, std::chrono::milliseconds most = 60s) {
  const auto end = lockstep::engine::Clock::now() + most;
  while (!transport.test(request)) {
    if (lockstep::engine::Clock::now() > end)
      throw Error(Code::kTimeout, "a message did not come in time");
    if (!transport.progress()) transport.sleep(50);
  }
}

const std::vector<std::size_t>& lengths() {
  static const std::vector<std::size_t> kLengths{0,
                                                 1,
                                                 8,
                                                 9,
                                                 10,
                                                 4096,
                                                 0,
                                                 mpi::kChunk - 1,
                                                 mpi::kChunk,
                                                 mpi::kChunk + 1,
                                                 2 * mpi::kChunk,
                                                 5 * mpi::kChunk + 7,
                                                 3'000'001,
                                                 5};
  return kLengths;
}

std::byte value(int from, int to, int tag, std::size_t message, std::size_t i) {
  return std::byte(std::size_t(from * 31 + to * 7 + tag * 3) + message * 11 + i * 13);
}

// Exchanges messages of all lengths between one rank and each peer, in two tags. The second tag is
// received first.
void exchange_all(const Job& job, Transport& transport, int rank) {
  struct Request {
    int number;
    std::function<void()> then;
  };
  std::vector<Request> requests;
  std::vector<std::vector<std::byte>> memory;
  memory.reserve(std::size_t(job.ranks()) * 4 * lengths().size());
  for (int peer = 0; peer < job.ranks(); ++peer) {
    if (peer / job.each == rank / job.each) continue;
    for (const int tag : {5, 1000})
      for (std::size_t m = 0; m < lengths().size(); ++m) {
        auto& data = memory.emplace_back(lengths()[m]);
        for (std::size_t i = 0; i < data.size(); ++i) data[i] = value(rank, peer, tag, m, i);
        requests.push_back({transport.post_send(peer, tag, data.data(), data.size()), {}});
      }
    for (const int tag : {1000, 5})
      for (std::size_t m = 0; m < lengths().size(); ++m) {
        auto& data = memory.emplace_back(lengths()[m]);
        const int number = transport.post_receive(peer, tag, data.data(), data.size());
        requests.push_back({number, [=, &data] {
                              std::size_t wrong = 0;
                              for (std::size_t i = 0; i < data.size(); ++i)
                                wrong += data[i] != value(peer, rank, tag, m, i);
                              check(wrong == 0, "bytes");
                            }});
      }
  }
  for (const Request& request : requests) {
    wait_for(transport, request.number);
    if (request.then) request.then();
  }
}

int messages(const Job& job) {
  const Transports transports = job.connect();
  for (int round = 0; round < 2; ++round) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < job.each; ++i)
      threads.emplace_back([&, i] {
        try {
          exchange_all(job, *transports[std::size_t(i)], job.me() * job.each + i);
        } catch (const Error& error) {
          check(false, error.what());
        }
      });
  }
  return 0;
}

// Runs the sums of a ring with one rank per process. All numbers are small and whole, so that sums
// are exact.
int ring(Job& job, bool late) {
  job.each = 1;
  const int me = job.me(), n = job.ranks();
  const auto ops = lockstep::engine::reference_ops(DType::kFloat64);
  for (const std::size_t length : {std::size_t(1), std::size_t(5000), std::size_t(300'001)}) {
    Request request;
    request.name = "bucket 0 (dense.weight): sum";
    request.subject = {0, length};
    for (int rank = 0; rank < n; ++rank) request.host.push_back(rank);
    const StepPlan plan{{ring_all_reduce(request), {}, false}};
    lockstep::engine::Buffer control(Team::control_bytes(1, 1)), values(length * 4);
    lockstep::engine::Buffer scratch(std::max<std::size_t>(ring_scratch(request), 1) * 4);
    Team team({me}, 1, control.data());
    team.set_base(me, Space::kGradient, values.data());
    team.set_base(me, Space::kScratch, scratch.data());
    const Transports transports = job.connect();
    Executor executor(me, team, transports[0].get(), *ops, {}, {.deadline = late ? 500ms : 60s});
    executor.open(plan);
    auto* floats = reinterpret_cast<float*>(values.data());
    for (int step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < length; ++i) floats[i] = float((i + std::size_t(me)) % 50);
      if (late && me == n - 1) {
        std::this_thread::sleep_for(3s);
        _exit(0);
      }
      executor.start(0, nullptr);
      executor.wait(0);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < length; ++i) {
        float sum = 0;
        for (int rank = 0; rank < n; ++rank) sum += float((i + std::size_t(rank)) % 50);
        wrong += floats[i] != sum;
      }
      check(wrong == 0, "sums");
    }
  }
  return 0;
}

int different_lengths(Job& job) {
  job.each = 1;
  const std::pair<std::size_t, std::size_t> cases[] = {{8, 4},
                                                       {4, 8},
                                                       {0, 1},
                                                       {1, 0},
                                                       {mpi::kChunk + 1, 100},
                                                       {100, mpi::kChunk + 1},
                                                       {2 * mpi::kChunk, 3 * mpi::kChunk}};
  std::vector<Transports> kept;  // keeps pending messages alive
  std::vector<std::byte> data(4 * mpi::kChunk);
  for (const auto& [sent, expected] : cases) {
    kept.push_back(job.connect());
    Transport& transport = *kept.back()[0];
    if (job.me() == 0) transport.post_send(1, 2, data.data(), sent);
    if (job.me() == 1) {
      try {
        wait_for(transport, transport.post_receive(0, 2, data.data(), expected));
        check(false, fmt::format("{} bytes were taken as {}", sent, expected));
      } catch (const Error& error) {
        check(error.code() == Code::kInvalid, error.what());
        check(std::string(error.what()).find("rank 0") != std::string::npos, error.what());
        check(std::string(error.what()).find(std::to_string(expected) + " ") != std::string::npos,
              error.what());
      }
    }
    job.bootstrap->all_gather("", "the end of a case");
  }
  right();
}

int tell(Job& job) {
  job.each = 1;
  const Transports transports = job.connect();
  std::byte data{};
  if (job.me() == 0) {
    transports[0]->abort({Code::kCorrupt, "rank 0 has a broken example"});
    job.bootstrap->all_gather("", "the end");
    right();
  }
  try {
    wait_for(*transports[0], transports[0]->post_receive(0, 1, &data, 1));
    check(false, "nothing was thrown");
  } catch (const Error& error) {
    check(error.code() == Code::kCorrupt, error.what());
    check(error.what() == std::string("rank 0 has a broken example"), error.what());
  }
  job.bootstrap->all_gather("", "the end");
  right();
}

int play(const std::string& kind, const std::string& part) {
  Job job{kind, mpi::open({.deadline = 30s})};
  int result = 0;
  if (part == "messages") result = messages(job);
  if (part == "ring" || part == "late") result = ring(job, part == "late");
  if (part == "lengths") result = different_lengths(job);
  if (part == "tell") result = tell(job);
  job.bootstrap->finish();
  if (result == 0) right();
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    check(argc == 3, "usage: transport_program tcp|mpi PART");
    return play(argv[1], argv[2]);
  } catch (const Error& error) {
    fmt::print("error {}: {}\n", name(error.code()), error.what());
    std::fflush(stdout);
    _exit(3);
  }
}
