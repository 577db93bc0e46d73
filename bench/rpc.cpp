// SPDX-License-Identifier: MIT
// Times the transfer of weights and gradients between a worker and a parameter server. Two
// processes push and pull all bytes in chunks, over loopback. It compares three transports,
// interleaved in one run, by medians: remote calls as between hosts; remote calls with bodies in
// shared memory, as on one host; and one plain TCP socket without further work. Pulled bytes end in
// one array with each transport. Pushed bytes end in a form that the server can sum: the received
// slices with remote calls, one buffer with the socket. Checked: the pulled bytes, and the sum of
// the pushed bytes.
//
//   bench_rpc --chunks 4,8,16 --json
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>

#include "bench/tcp_rival.h"
#include "engine/base/median.h"
#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "strategies/parameter_server/rpc/shared_connection.h"
#include "strategies/parameter_server/rpc/shared_service.h"
#include "tools/bench/program_flags.h"

namespace lockstep::bench {
namespace {

using engine::Clock;
using strategies::rpc::Message;
using strategies::rpc::Reply;

constexpr std::size_t kMega = 1000000;
constexpr auto kDeadline = std::chrono::seconds(60);

struct Flags {
  std::size_t megabytes = 100, window = 4;
  std::vector<std::size_t> chunks = {4, 8, 16};
  int turns = 9;
  bool json = false, serve = false;
};

std::vector<std::byte> random_bytes(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    byte = std::byte(seed >> 56);
  }
  return bytes;
}

std::uint64_t sum_of(const std::byte* data, std::size_t size) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum += std::uint8_t(data[i]);
  return sum;
}

// Returns a head of numbers as protobuf's fixed64: fields 1, 2, ...
std::string head_of(std::initializer_list<std::uint64_t> numbers) {
  std::string head;
  char field = 0;
  for (const std::uint64_t number : numbers) {
    head.push_back(char(++field << 3 | 1));
    head.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  return head;
}

std::uint64_t number_in(const std::string& head, std::size_t field) {
  std::uint64_t number = 0;
  std::memcpy(&number, head.data() + (field - 1) * 9 + 1, sizeof(number));
  return number;
}

// A service with three methods: "Push" takes a body, "Pull" returns the bytes that the head names,
// "Sum" takes a body and sums it.
class Weights : public strategies::rpc::Service {
 public:
  explicit Weights(std::shared_ptr<const std::vector<std::byte>> bytes)
      : bytes_(std::move(bytes)) {}
  void call(std::string_view method, Message request,
            std::shared_ptr<const strategies::rpc::Caller>, strategies::rpc::Done done) override {
    Reply reply;
    if (method == "Pull") {
      const std::uint64_t offset = number_in(request.head, 1), size = number_in(request.head, 2);
      reply.message.body.push_back({bytes_->data() + offset, size, bytes_});
    } else if (method == "Sum") {
      std::uint64_t sum = 0;
      for (const auto& slice : request.body) sum += sum_of(slice.data, slice.size);
      reply.message.head = head_of({sum});
    }
    done(std::move(reply));
  }

 private:
  std::shared_ptr<const std::vector<std::byte>> bytes_;
};

// Runs the other process: prints its two ports, and ends when its standard input does.
int serve(const Flags& f) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto bytes =
      std::make_shared<const std::vector<std::byte>>(random_bytes(f.megabytes * kMega, 1));
  Weights service(bytes);
  strategies::rpc::SharedService shared(service);
  const auto server = strategies::grpc::serve(shared);
  const TcpRivalServer rival(*bytes);
  fmt::print("{} {}\n", server->port(), rival.port());
  std::fflush(stdout);
  char nothing = 0;
  while (::read(STDIN_FILENO, &nothing, 1) > 0) {
  }
  return 0;
}

class ServerProcess {
 public:
  explicit ServerProcess(const Flags& f) {
    int in[2], out[2];
    engine::require(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0, "no pipes");
    const std::string size = std::to_string(f.megabytes);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(in[0], STDIN_FILENO);
      dup2(out[1], STDOUT_FILENO);
      execl("/proc/self/exe", "bench_rpc", "--serve", "--mb", size.c_str(), nullptr);
      _exit(1);
    }
    ::close(in[0]), ::close(out[1]);
    to_ = in[1];
    std::FILE* from = fdopen(out[0], "r");
    const bool said = std::fscanf(from, "%d %d", &port, &rival_port) == 2;
    std::fclose(from);
    engine::require(said, "the other process did not begin");
  }
  ~ServerProcess() {
    ::close(to_);
    waitpid(pid_, nullptr, 0);
  }
  int port = 0, rival_port = 0;

 private:
  pid_t pid_ = -1;
  int to_ = -1;
};

// Calls with up to `window` of them in flight; `wait` throws the first error.
class Pipeline {
 public:
  Pipeline(strategies::rpc::Connection& connection, std::size_t window)
      : connection_(connection), window_(window) {}
  void call(std::string_view method, Message request, std::function<void(const Message&)> took) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return under_way_ < window_; });
      ++under_way_;
    }
    connection_.start(method, std::move(request), Clock::now() + kDeadline,
                      [this, took = std::move(took)](Reply reply) {
                        if (reply.ok()) took(reply.message);
                        const std::lock_guard lock(mutex_);
                        if (!reply.ok() && error_.empty()) error_ = reply.why;
                        --under_way_;
                        changed_.notify_all();
                      });
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return under_way_ == 0; });
    if (!error_.empty()) engine::fail(engine::Code::kIo, "a call failed: {}", error_);
  }

 private:
  strategies::rpc::Connection& connection_;
  std::size_t window_, under_way_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string error_;
};

void push(strategies::rpc::Connection& connection, const std::vector<std::byte>& from,
          std::size_t chunk, std::size_t window) {
  Pipeline pipeline(connection, window);
  for (std::size_t at = 0; at < from.size(); at += chunk) {
    Message request;
    request.body.push_back({from.data() + at, std::min(chunk, from.size() - at), nullptr});
    pipeline.call("Push", std::move(request), [](const Message&) {});
  }
  pipeline.wait();
}

void pull(strategies::rpc::Connection& connection, std::vector<std::byte>& to, std::size_t chunk,
          std::size_t window) {
  Pipeline pipeline(connection, window);
  for (std::size_t at = 0; at < to.size(); at += chunk) {
    Message request;
    request.answer_bytes = std::min(chunk, to.size() - at);
    request.head = head_of({at, request.answer_bytes});
    pipeline.call("Pull", std::move(request), [out = to.data() + at](const Message& reply) {
      std::byte* next = out;
      for (const auto& slice : reply.body) {
        std::memcpy(next, slice.data, slice.size);
        next += slice.size;
      }
    });
  }
  pipeline.wait();
}

struct Times {
  std::vector<double> push = {}, pull = {};  // seconds per round
};
struct Row {
  std::size_t chunk = 0;  // MB
  Times calls = {}, shared = {}, tcp = {};
};

double rate(const Flags& f, const std::vector<double>& seconds) {
  return double(f.megabytes) / 1000 / engine::median(seconds);  // GB/s
}

// Returns the median over rounds of the socket's time over that of the calls, push and pull
// together.
double ratio(const Times& tcp, const Times& calls) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < tcp.push.size(); ++i)
    ratios.push_back((tcp.push[i] + tcp.pull[i]) / (calls.push[i] + calls.pull[i]));
  return engine::median(ratios);
}

void print(const Flags& f, const std::vector<Row>& rows) {
  if (f.json) {
    nlohmann::json object{{"mb", f.megabytes}, {"window", f.window}, {"turns", f.turns}};
    for (const Row& row : rows)
      object["chunks"].push_back({{"name", fmt::format("{} MB", row.chunk)},
                                  {"push_gb_s", rate(f, row.calls.push)},
                                  {"shared_push_gb_s", rate(f, row.shared.push)},
                                  {"tcp_push_gb_s", rate(f, row.tcp.push)},
                                  {"pull_gb_s", rate(f, row.calls.pull)},
                                  {"shared_pull_gb_s", rate(f, row.shared.pull)},
                                  {"tcp_pull_gb_s", rate(f, row.tcp.pull)},
                                  {"ratio", ratio(row.tcp, row.calls)},
                                  {"shared_ratio", ratio(row.tcp, row.shared)}});
    fmt::print("{}\n", object.dump());
    return;
  }
  fmt::print("{} MB, {} chunks under way, medians of {} turns, GB/s; ratios to tcp\n", f.megabytes,
             f.window, f.turns);
  fmt::print("{:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "chunk", "push", "shared",
             "tcp", "pull", "shared", "tcp", "ratio", "shared");
  for (const Row& row : rows)
    fmt::print("{:>5} MB {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}\n",
               row.chunk, rate(f, row.calls.push), rate(f, row.shared.push), rate(f, row.tcp.push),
               rate(f, row.calls.pull), rate(f, row.shared.pull), rate(f, row.tcp.pull),
               ratio(row.tcp, row.calls), ratio(row.tcp, row.shared));
}

void check(strategies::rpc::Connection& connection, const std::vector<std::byte>& pushed,
           std::size_t chunk, std::size_t window) {
  std::atomic<std::uint64_t> sum = 0;
  Pipeline pipeline(connection, window);
  for (std::size_t at = 0; at < pushed.size(); at += chunk) {
    Message request;
    request.body.push_back({pushed.data() + at, std::min(chunk, pushed.size() - at), nullptr});
    pipeline.call("Sum", std::move(request),
                  [&](const Message& reply) { sum += number_in(reply.head, 1); });
  }
  pipeline.wait();
  engine::require(sum == sum_of(pushed.data(), pushed.size()), "what was pushed is not what came");
}

int run(const Flags& f) {
  const ServerProcess process(f);
  const std::string address = "127.0.0.1:" + std::to_string(process.port);
  const auto connection = strategies::grpc::connect(address);
  strategies::rpc::SharedConnection shared(strategies::grpc::connect(address), engine::Log());
  TcpRivalClient rival(process.rival_port);
  const std::vector<std::byte> theirs = random_bytes(f.megabytes * kMega, 1);
  const std::vector<std::byte> ours = random_bytes(f.megabytes * kMega, 2);
  std::vector<std::byte> pulled(theirs.size());
  std::vector<Row> rows;
  for (const std::size_t mb : f.chunks) rows.push_back({mb});
  // The first round does not count.
  for (int turn = 0; turn <= f.turns; ++turn)
    for (Row& row : rows) {
      const std::size_t chunk = row.chunk * kMega;
      const auto took = [&](std::vector<double>& seconds, const auto& body) {
        const auto begin = Clock::now();
        body();
        if (turn > 0)
          seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
      };
      const auto pulled_well = [&] {
        engine::require(pulled == theirs, "what was pulled is not what is there");
        std::fill(pulled.begin(), pulled.end(), std::byte(0));
      };
      took(row.tcp.push, [&] { rival.push(ours, chunk, f.window); });
      took(row.calls.push, [&] { push(*connection, ours, chunk, f.window); });
      took(row.shared.push, [&] { push(shared, ours, chunk, f.window); });
      took(row.tcp.pull, [&] { rival.pull(pulled, chunk, f.window); });
      pulled_well();
      took(row.calls.pull, [&] { pull(*connection, pulled, chunk, f.window); });
      pulled_well();
      took(row.shared.pull, [&] { pull(shared, pulled, chunk, f.window); });
      pulled_well();
      if (turn > 0) continue;
      check(*connection, ours, chunk, f.window);
      check(shared, ours, chunk, f.window);
    }
  engine::require(shared.shared_bytes() > 0, "the other process did not map the memory");
  print(f, rows);
  return 0;
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  using lockstep::tools::bench::NumberRange, lockstep::tools::bench::ProgramFlags;
  lockstep::bench::Flags f;
  ProgramFlags flags("bench_rpc", "Pushes and pulls by remote calls, beside a plain TCP socket.");
  flags.option("--mb", f.megabytes, "bytes of a push, and of a pull, in 10^6",
               NumberRange{1, 2000});
  flags.list("--chunks", f.chunks, "their sizes, in 10^6 bytes", NumberRange{1, 60});
  flags.option("--window", f.window, "chunks under way", NumberRange{1, 64});
  flags.option("--turns", f.turns, {}, NumberRange{1, 1000});
  flags.flag("--json", f.json, "one JSON object");
  flags.hidden_flag("--serve", f.serve);
  return flags.run(argc, argv,
                   [&] { return f.serve ? lockstep::bench::serve(f) : lockstep::bench::run(f); });
}
