// SPDX-License-Identifier: MIT
// An NCCL for tests: ranks are threads of one process, memory is the host's, and a stream is any
// address or one that `meet` knows. Queued work runs when it is first in the streams of all its
// ranks. Like NCCL's, its communicators never block. They are in progress until all ranks have
// come, and after each call for `lag` queries; a call meanwhile is a misuse. Its functions find the
// fake through a global variable, so only one may exist at a time. Thread-safe; set the fields
// before ranks run.
#pragma once
#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/nccl/nccl_functions.h"
#include "test/collectives/nccl/host_collectives.h"

namespace lockstep::collectives::nccl {

class FakeNccl {
 public:
  struct Comm;
  // Lists the ranks of a communicator. An entry is null before its rank has come and after it is
  // gone.
  struct Clique {
    std::vector<Comm*> members;
    int came = 0;
    bool broken = false;  // a rank is gone: nothing runs any more
  };
  struct Split {
    int colour, key;
    ncclComm_t* place;
    Comm* part = nullptr;
    bool resolved = false;
  };
  struct Comm {
    Clique* clique;
    int rank;
    int whole;  // its rank in the first communicator
    ncclResult_t error = ncclSuccess;
    std::string words{};
    int lag = 0;
    std::optional<Split> split{};
    bool finalized = false;
    int registrations = 0;
    std::size_t queued = 0;
  };
  struct Work {
    Comm* comm;
    void* stream;
    std::size_t number;  // index within its communicator
    Kind kind;
    Operand operand;
    std::size_t count;
    ncclDataType_t type;
    int root;
  };

  // Runs work in streams that have their own queues. `join` puts it behind the earlier work of a
  // stream.
  struct Meeting {
    virtual ~Meeting() = default;
    virtual void join(void* stream) = 0;
    virtual void give_up() = 0;  // the streams go on without it
  };
  using Meet = std::function<std::unique_ptr<Meeting>(int ranks, std::function<void()> run)>;

  explicit FakeNccl(Meet meet = {});
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;
  NcclFunctions functions() const;

  std::atomic<int> version = NCCL_VERSION_CODE;
  int lag = 0;  // queries in progress after each call
  bool never_starts = false, never_finalizes = false;
  ncclResult_t answer = ncclSuccess;  // result of collectives

  bool idle(void* stream);
  // Fails every communicator of this rank of the first communicator; the other ranks are not told.
  void fail(int rank, ncclResult_t error, const std::string& words);
  // Removes this rank: the other ranks of its communicators get ncclRemoteError.
  void lose(int rank, const std::string& words);

  int communicators();  // that exist now
  int made();           // ever made, counted once per rank
  int aborted();        // made and aborted
  int queued();         // collectives that all ranks have queued
  int registrations();
  int allocations();
  std::vector<std::string> misuses();

  // Runs `call` with the mutex held, for the functions of the fake.
  static ncclResult_t locked(const std::function<ncclResult_t(FakeNccl&)>& call);
  Comm* use(ncclComm_t handle, const char* call, bool needs_ready);
  ncclResult_t join(ncclComm_t* comm, int ranks, const ncclUniqueId& id, int rank);
  ncclResult_t state(Comm& comm);
  ncclResult_t begin_split(Comm& comm, const Split& split);
  ncclResult_t queue(Work work);
  ncclResult_t leave(Comm& comm, bool abort);
  ncclResult_t allocate(void** data, std::size_t bytes);
  ncclResult_t release(void* data);
  ncclUniqueId next_id();
  void misuse(const std::string& what) { misuses_.push_back(what); }
  ncclResult_t busy(Comm& comm);

 private:
  void resolve_split(Clique& clique);
  Comm* add(Clique& clique, int rank, int whole);
  ncclResult_t join_meeting(const Work& work);
  void run_what_can();
  bool runs(const Work& work);

  // Holds a collective that some ranks have joined.
  struct Met {
    Work first;  // work of the first rank
    std::vector<Operand> operands;
    int came = 0;
    std::unique_ptr<Meeting> meeting;
  };

  Meet meet_;
  std::mutex mutex_;
  std::map<std::pair<const Clique*, std::size_t>, Met> met_;
  std::map<std::string, std::unique_ptr<Clique>> by_id_;
  std::vector<std::unique_ptr<Clique>> parts_;
  std::map<const void*, std::unique_ptr<Comm>> comms_;
  std::map<void*, std::deque<Work>> streams_;
  std::map<void*, std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::string> misuses_;
  int ids_ = 0, made_ = 0, aborted_ = 0, queued_ = 0;
};

}  // namespace lockstep::collectives::nccl
