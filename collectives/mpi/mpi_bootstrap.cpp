// SPDX-License-Identifier: MIT
#include "collectives/mpi/mpi_bootstrap.h"

#include <mpi.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <mutex>
#include <numeric>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/mpi/mpi_transport.h"
#include "collectives/mpi/siblings.h"
#include "collectives/mpi/watchdog.h"
#include "engine/base/error.h"
#include "engine/base/hash.h"

namespace lockstep::collectives::mpi {
namespace {

using engine::Clock;
using engine::Code;
using engine::fail;

// Time in which everything that was sent arrives, even if a sender ended right after.
constexpr std::chrono::milliseconds kArrivalTime{100};

void nap() {
  const timespec fifty_microseconds{0, 50'000};
  nanosleep(&fifty_microseconds, nullptr);
}

bool flag(int (*question)(int*)) {
  int answer = 0;
  question(&answer);
  return answer != 0;
}

// Holds memory that MPI reads and writes until its requests complete. If an exchange is given up,
// its memory is never freed, since MPI may still access it.
struct ExchangeMemory {
  struct Head {  // header of a value
    int bytes = 0;
    int what = 0;  // hash of `what`
  };
  std::string mine;
  Head head;
  std::vector<Head> heads;
  std::vector<int> lengths, offsets;
  std::vector<char> all;
};
static_assert(sizeof(ExchangeMemory::Head) == 2 * sizeof(int));

class MpiBootstrap : public Bootstrap {
 public:
  explicit MpiBootstrap(std::chrono::milliseconds deadline)
      : deadline_(deadline), ours_(!flag(MPI_Initialized)) {
    if (ours_) {
      const Watchdog dog("MPI_Init", deadline_);
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level_), "MPI_Init_thread");
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    } else {
      MPI_Query_thread(&level_);
    }
    join(MPI_COMM_WORLD);
  }
  // Joins the job of a program that runs MPI itself.
  MpiBootstrap(Communicator communicator, std::chrono::milliseconds deadline)
      : deadline_(deadline), ours_(false) {
    engine::require(flag(MPI_Initialized) && !flag(MPI_Finalized),
                    "a session on a communicator of MPI needs a program that has called MPI_Init, "
                    "and not yet MPI_Finalize");
    const MPI_Comm theirs = MPI_Comm_f2c(communicator.handle);
    engine::require(theirs != MPI_COMM_NULL,
                    "a session needs a communicator that this process belongs to, not "
                    "MPI_COMM_NULL");
    MPI_Query_thread(&level_);
    join(theirs);
  }

  std::string description() const override { return version(); }
  int process() const override { return process_; }
  int processes() const override { return processes_; }
  std::vector<int> hosts() const override { return hosts_; }

  std::vector<std::string> all_gather(const std::string& mine, const std::string& what) override {
    engine::require(mine.size() <= kMostBytes, "{}: {} bytes from one process, {} are the most",
                    what, mine.size(), kMostBytes);
    engine::invariant(!over_, "an exchange after the end");
    auto exchange = std::make_unique<ExchangeMemory>();
    try {
      return gather(*exchange, mine, what);
    } catch (...) {
      failed_ = true;
      [[maybe_unused]] const ExchangeMemory* leaked = exchange.release();
      throw;
    }
  }

  // Needs MPI_THREAD_MULTIPLE if a program runs MPI itself, since it may call MPI while our threads
  // do.
  std::vector<std::unique_ptr<Transport>> transports(const std::vector<int>& process,
                                                     const std::vector<std::pair<int, int>>& pairs,
                                                     const std::string& what) override {
    const int needed = ours_ ? MPI_THREAD_SERIALIZED : MPI_THREAD_MULTIPLE;
    engine::require(level_ >= needed,
                    "{}transport mpi needs an MPI that was started with {}; use transport tcp, or "
                    "{}",
                    what, ours_ ? "MPI_THREAD_SERIALIZED" : "MPI_THREAD_MULTIPLE",
                    ours_ ? "another MPI" : "call MPI_Init_thread");
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm& mine = *messages_.emplace(messages_.end(), MPI_COMM_NULL);
    {
      const std::scoped_lock lock(calls_->mutex);
      check(MPI_Comm_idup(comm_, &mine, &request), "MPI_Comm_idup");
    }
    wait(request, what + "the way to other hosts");
    MPI_Comm_set_errhandler(mine, MPI_ERRORS_RETURN);
    return connect(calls_, MPI_Comm_c2f(mine), process, pairs);
  }

  void abandon(const engine::Error& why) noexcept override {
    const std::scoped_lock lock(abandoned_mutex_);
    if (!abandoned_) abandoned_ = Abandoned{why, Clock::now() + kArrivalTime};
  }

  void finish() override {
    if (failed_ || over_ || calls_->failed || abandoned()) return;
    over_ = true;
    const Watchdog dog("the end of the job (MPI_Finalize)", deadline_);
    if (flag(MPI_Finalized)) return;
    if (!ours_) {
      MPI_Request request = MPI_REQUEST_NULL;
      check(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
      wait(request, "end of the job");
    }
    for (MPI_Comm& messages : messages_) MPI_Comm_free(&messages);
    MPI_Comm_free(&comm_);
    if (ours_) MPI_Finalize();
  }

 private:
  struct Abandoned {
    engine::Error why;
    Clock::time_point end;  // end of waits
  };

  // Joins the processes of a duplicate, whose messages match no others.
  void join(MPI_Comm communicator) {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Comm_idup(communicator, &comm_, &request), "MPI_Comm_idup");
    wait(request, "start of the job");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    check(MPI_Comm_rank(comm_, &process_), "MPI_Comm_rank");
    check(MPI_Comm_size(comm_, &processes_), "MPI_Comm_size");
    find_hosts();
  }

  int test(MPI_Request& request, int& through) {
    const std::scoped_lock lock(calls_->mutex);
    return MPI_Test(&request, &through, MPI_STATUS_IGNORE);
  }

  void wait(MPI_Request& request, std::string_view what) {
    const auto end = Clock::now() + deadline_;
    for (int through = 0;;) {
      const int code = test(request, through);
      if (code != MPI_SUCCESS) failed_ = true;
      check(code, what);
      if (through != 0) return;
      throw_if_abandoned();
      if (Clock::now() > end) {
        failed_ = true;
        const std::string stopped = stopped_siblings();
        fail(Code::kTimeout, "process {} of {} waited {} s for the others: {}; {}", process_,
             processes_, double(deadline_.count()) / 1000, what,
             stopped.empty() ? "one of them is dead, stopped or did not come so far" : stopped);
      }
      nap();
    }
  }

  // Returns whether `abandon` was called. Then a process is gone, and the end of MPI would wait for
  // it.
  bool abandoned() {
    const std::scoped_lock lock(abandoned_mutex_);
    return abandoned_.has_value();
  }

  void throw_if_abandoned() override {
    const std::scoped_lock lock(abandoned_mutex_);
    if (!abandoned_ || Clock::now() < abandoned_->end) return;
    failed_ = true;
    throw engine::Error(abandoned_->why);
  }

  // Exchanges the lengths, checks that all exchange the same, and then exchanges the values.
  std::vector<std::string> gather(ExchangeMemory& e, const std::string& mine,
                                  const std::string& what) {
    e.mine = mine;
    e.head = {int(mine.size()), int(std::uint32_t(engine::hash(what)))};
    e.heads.resize(std::size_t(processes_));
    e.lengths.resize(e.heads.size());
    e.offsets.resize(e.heads.size());
    MPI_Request request = MPI_REQUEST_NULL;
    {
      const std::scoped_lock lock(calls_->mutex);
      check(MPI_Iallgather(&e.head, 2, MPI_INT, e.heads.data(), 2, MPI_INT, comm_, &request), what);
    }
    wait(request, what);
    for (std::size_t i = 0; i < e.heads.size(); ++i) {
      engine::require(e.heads[i].what == e.head.what,
                      "process {} exchanges {} while process {} exchanges something else; all must "
                      "make the same calls in the same order",
                      process_, what, i);
      e.lengths[i] = e.heads[i].bytes;
    }
    const std::int64_t total = std::accumulate(e.lengths.begin(), e.lengths.end(), std::int64_t{0});
    engine::require(total <= std::numeric_limits<int>::max(),
                    "{}: {} bytes from all processes together are too many", what, total);
    std::exclusive_scan(e.lengths.begin(), e.lengths.end(), e.offsets.begin(), 0);
    e.all.resize(std::size_t(total));
    {
      const std::scoped_lock lock(calls_->mutex);
      check(MPI_Iallgatherv(e.mine.data(), e.head.bytes, MPI_CHAR, e.all.data(), e.lengths.data(),
                            e.offsets.data(), MPI_CHAR, comm_, &request),
            what);
    }
    wait(request, what);
    std::vector<std::string> values;
    for (std::size_t i = 0; i < e.lengths.size(); ++i) {
      values.emplace_back(e.all.data() + e.offsets[i], std::size_t(e.lengths[i]));
    }
    return values;
  }

  // Numbers the hosts. Processes that can share memory share a communicator, and each sends the
  // job's number of that communicator's first process. Hosts are numbered in order of these first
  // processes.
  void find_hosts() {
    int leader = 0;
    {
      const Watchdog dog("MPI_Comm_split_type", deadline_);  // has no nonblocking form
      MPI_Comm host = MPI_COMM_NULL;
      check(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, process_, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
      MPI_Group job = MPI_GROUP_NULL, neighbours = MPI_GROUP_NULL;
      MPI_Comm_group(comm_, &job);
      MPI_Comm_group(host, &neighbours);
      const int first = 0;
      check(MPI_Group_translate_ranks(neighbours, 1, &first, job, &leader),
            "MPI_Group_translate_ranks");
      MPI_Group_free(&job);
      MPI_Group_free(&neighbours);
      MPI_Comm_free(&host);
    }
    std::vector<std::string> leaders;
    for (const std::string& text :
         all_gather(std::to_string(leader), "which processes share a host")) {
      const auto known = std::find(leaders.begin(), leaders.end(), text);
      hosts_.push_back(int(known - leaders.begin()));
      if (known == leaders.end()) leaders.push_back(text);
    }
  }

  std::chrono::milliseconds deadline_;
  bool ours_;
  int level_ = MPI_THREAD_SINGLE;  // level of thread support
  const std::shared_ptr<Calls> calls_ = std::make_shared<Calls>();
  std::deque<MPI_Comm> messages_;  // one per `transports`; freed collectively
  bool failed_ = false, over_ = false;
  std::mutex abandoned_mutex_;
  std::optional<Abandoned> abandoned_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int process_ = 0, processes_ = 1;
  std::vector<int> hosts_;
};

}  // namespace

bool available() {
  return true;
}

// Returns the library's name and version, from its text "Open MPI v4.1.4, package: ...".
std::string version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "MPI";
  std::string all(text.data(), std::size_t(length));
  all = all.substr(0, all.find_first_of(",\n"));
  const std::size_t v = all.find(" v");
  if (v != std::string::npos) all.erase(v + 1, 1);
  return all;
}

std::unique_ptr<Bootstrap> open(const Options& options) {
  return std::make_unique<MpiBootstrap>(options.deadline);
}

std::unique_ptr<Bootstrap> open(Communicator communicator, const Options& options) {
  return std::make_unique<MpiBootstrap>(communicator, options.deadline);
}

}  // namespace lockstep::collectives::mpi
