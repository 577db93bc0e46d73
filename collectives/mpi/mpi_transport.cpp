// SPDX-License-Identifier: MIT
#include "collectives/mpi/mpi_transport.h"

#include <fmt/core.h>
#include <mpi.h>
#include <sys/prctl.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>

#include "engine/base/error.h"
#include "engine/base/error_bytes.h"

namespace lockstep::collectives::mpi {
namespace {

using engine::Clock;
using engine::Code;

constexpr std::size_t kWindow = 8;  // chunks in flight per pair and tag
constexpr int kReasonTag = 0;       // reasons and control messages; others are above
// Limits per process (in progress) and per rank (not yet received).
constexpr std::size_t kMostControlMessages = 16;
constexpr std::chrono::milliseconds kLastWords{500};
constexpr unsigned long kTimerSlack = 1000;  // ns; keeps sleeps of 50 us short

// Header before a message of several chunks: its length. It has nine bytes, which no message of
// numbers has, so that a receiver of another message notices.
using Header = std::array<std::byte, 9>;

struct PostedMessage {
  int request = -1;
  std::byte* data = nullptr;  // MPI only reads it for sends
  std::size_t bytes = 0;
  Header header{};
  bool headed = false;     // the header is posted or not needed
  bool begun = false;      // a chunk is posted, perhaps of 0 bytes
  std::size_t posted = 0;  // bytes
  int pending = 0;         // posted, incomplete chunks and header
  bool all_posted() const { return headed && begun && posted == bytes; }
};

struct Chunk {
  MPI_Request request = MPI_REQUEST_NULL;
  PostedMessage* message = nullptr;
  std::size_t bytes = 0;
  bool header = false;
};

// Messages of one pair and tag in one direction, in posting order. MPI preserves this order, so the
// chunks of one message are posted before those of the next, and only the oldest is tested.
struct MessageLine {
  int process = 0, tag = 0, peer = 0;
  bool sends = false;
  std::deque<PostedMessage> messages = {};
  std::deque<Chunk> flight = {};
};

struct Reason {
  std::int32_t bytes = 0;
  std::array<std::byte, Transport::kMostReason> error{};
};

// Carries a control message in place of a reason. Its first number is negative.
struct ControlFrame {
  std::int32_t kind, from, to, plan;
};
constexpr std::int32_t kQuestionFrame = -1, kAnswerFrame = -2;

// Holds the state that the transports of one process share. MPI calls hold the lock of `calls`.
class Fabric {
 public:
  Fabric(std::shared_ptr<Calls> calls, MPI_Comm communicator, const std::vector<int>& process,
         const std::vector<std::pair<int, int>>& pairs)
      : calls_(std::move(calls)), comm_(communicator), process_(process) {
    std::map<int, int> counts;
    for (const int p : process_) {
      place_.push_back(counts[p]++);
      most_ = std::max(most_, counts[p]);
    }
    for (const auto& [here, there] : pairs) {
      engine::require(here >= 0 && there >= 0 && std::max(here, there) < int(process_.size()),
                      "a connection of rank {} with rank {} of {}", here, there, process_.size());
      peers_.insert(process_[std::size_t(there)]);
    }
    const std::scoped_lock lock(calls_->mutex);
    MPI_Comm_rank(comm_, &me_);
    void* bound = nullptr;
    int known = 0;
    MPI_Comm_get_attr(comm_, MPI_TAG_UB, &bound, &known);
    if (known != 0) most_tag_ = *static_cast<int*>(bound);
    listen();
  }

  // Gives up all incomplete requests.
  ~Fabric() {
    const std::scoped_lock lock(calls_->mutex);
    int over = 0;
    MPI_Finalized(&over);
    if (over != 0) return;
    for (auto& [key, line] : lines_) {
      for (Chunk& chunk : line.flight) {
        calls_->failed = true;
        give_up(chunk.request, !line.sends);
      }
    }
    for (auto& [request, frame] : controls_) {
      if (!give_up(request, false)) [[maybe_unused]]
        const ControlFrame* left = frame.release();
    }
    if (!give_up(hearing_, true)) [[maybe_unused]]
      const Reason* leaked = heard_.release();  // MPI may still write there
  }
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  int me() const { return me_; }

  int post(int rank, int peer, int tag, bool sends, std::byte* data, std::size_t bytes) {
    const std::scoped_lock lock(calls_->mutex);
    rethrow();
    engine::require(peer >= 0 && peer < int(process_.size()) &&
                        process_[std::size_t(peer)] != process_[std::size_t(rank)],
                    "rank {} has no connection with rank {}", rank, peer);
    const auto [entry, added] = lines_.try_emplace({rank, peer, tag, sends});
    MessageLine& line = entry->second;
    if (added) {
      const int from = place_[std::size_t(sends ? rank : peer)];
      const int to = place_[std::size_t(sends ? peer : rank)];
      const std::int64_t number = 1 + (std::int64_t(tag) * most_ + from) * most_ + to;
      engine::require(number <= most_tag_, "MPI's tags end at {}, and message {} needs {}",
                      most_tag_, tag, number);
      line.process = process_[std::size_t(peer)];
      line.tag = int(number);
      line.peer = peer;
      line.sends = sends;
    }
    if (free_.empty()) {
      free_.push_back(int(through_.size()));
      through_.push_back(false);
    }
    const int request = free_.back();
    free_.pop_back();
    through_[std::size_t(request)] = false;
    PostedMessage& message = line.messages.emplace_back();
    message.request = request;
    message.data = data;
    message.bytes = bytes;
    message.headed = bytes <= kChunk;
    const std::uint64_t length = bytes;
    if (sends) std::memcpy(message.header.data(), &length, sizeof length);
    guarded([&] { pump(line); });
    return request;
  }

  bool test(int request) {
    const std::scoped_lock lock(calls_->mutex);
    if (!through_[std::size_t(request)]) {
      rethrow();
      return false;
    }
    through_[std::size_t(request)] = false;
    free_.push_back(request);
    return true;
  }

  bool progress() {
    const std::scoped_lock lock(calls_->mutex);
    rethrow();
    bool moved = false;
    guarded([&] { moved = advance(); });
    return moved;
  }

  void send_control(int rank, int peer, Transport::ControlKind kind, int plan) noexcept {
    const std::scoped_lock lock(calls_->mutex);
    if (failure_ || closed_ || controls_.size() == kMostControlMessages) return;
    try {
      auto message = std::make_unique<ControlFrame>(
          ControlFrame{kind == Transport::ControlKind::kQuestion ? kQuestionFrame : kAnswerFrame,
                       rank, peer, plan});
      auto& [request, memory] = controls_.emplace_back(MPI_REQUEST_NULL, std::move(message));
      if (MPI_Isend(memory.get(), int(sizeof *memory), MPI_BYTE, process_[std::size_t(peer)],
                    kReasonTag, comm_, &request) != MPI_SUCCESS)
        controls_.pop_back();
    } catch (const std::exception&) {  // no memory
    }
  }

  std::optional<Transport::ControlMessage> receive_control(int rank) {
    const std::scoped_lock lock(calls_->mutex);
    std::deque<Transport::ControlMessage>& received = received_controls_[rank];
    if (received.empty()) return {};
    const Transport::ControlMessage message = received.front();
    received.pop_front();
    return message;
  }

  void abort(const engine::Error& why) noexcept {
    const std::scoped_lock lock(calls_->mutex);
    if (closed_) return;
    closed_ = true;
    calls_->failed = true;
    try {
      tell(why);
    } catch (const std::exception&) {  // no memory; peers have their deadlines
    }
  }

 private:
  using Key = std::tuple<int, int, int, bool>;  // rank, peer, tag, whether it is sent

  void rethrow() const {
    if (failure_) throw *failure_;
  }
  template <class Work>
  void guarded(const Work& work) {
    try {
      work();
    } catch (const engine::Error& error) {
      failure_ = error;
      calls_->failed = true;
      throw;
    }
  }

  // Gives up a request. Returns whether it completed after all; a receive without a sender
  // completes at once.
  static bool give_up(MPI_Request& request, bool receives) {
    if (request == MPI_REQUEST_NULL) return true;
    if (receives) MPI_Cancel(&request);
    int through = 0;
    if (MPI_Test(&request, &through, MPI_STATUS_IGNORE) == MPI_SUCCESS && through != 0) return true;
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    return false;
  }

  // Posts the receive of a peer's control message or reason to stop.
  void listen() {
    check(MPI_Irecv(heard_.get(), int(sizeof *heard_), MPI_BYTE, MPI_ANY_SOURCE, kReasonTag, comm_,
                    &hearing_),
          "MPI_Irecv");
  }

  void start(MessageLine& line, PostedMessage& message, std::byte* data, std::size_t bytes,
             bool header) {
    Chunk& chunk = line.flight.emplace_back(Chunk{MPI_REQUEST_NULL, &message, bytes, header});
    ++message.pending;
    if (line.sends) {
      check(MPI_Isend(data, int(bytes), MPI_BYTE, line.process, line.tag, comm_, &chunk.request),
            "MPI_Isend");
    } else {
      check(MPI_Irecv(data, int(bytes), MPI_BYTE, line.process, line.tag, comm_, &chunk.request),
            "MPI_Irecv");
    }
  }

  // Posts chunks in order while the window has room.
  void pump(MessageLine& line) {
    for (PostedMessage& m : line.messages) {
      if (!m.headed && line.flight.size() < kWindow) {
        m.headed = true;
        start(line, m, m.header.data(), m.header.size(), true);
      }
      while (line.flight.size() < kWindow && m.headed && !m.all_posted()) {
        const std::size_t bytes = std::min(kChunk, m.bytes - m.posted);
        m.begun = true;
        start(line, m, m.data + m.posted, bytes, false);
        m.posted += bytes;
      }
      if (line.flight.size() >= kWindow) return;
    }
  }

  bool advance() {
    int through = 0;
    check(MPI_Test(&hearing_, &through, MPI_STATUS_IGNORE), "MPI_Test");
    if (through != 0) {
      heed();
      listen();
    }
    while (!controls_.empty()) {
      int sent = 0;
      check(MPI_Test(&controls_.front().first, &sent, MPI_STATUS_IGNORE), "MPI_Test");
      if (sent == 0) break;
      controls_.pop_front();
    }
    bool moved = false;
    for (auto& [key, line] : lines_) {
      bool ended = false;
      while (!line.flight.empty() && test_oldest(line)) ended = true;
      if (!ended) continue;
      moved = true;
      while (!line.messages.empty() && line.messages.front().request < 0) line.messages.pop_front();
      pump(line);
    }
    return moved;
  }

  // Handles a peer's control message, or throws its reason to stop.
  void heed() {
    if (heard_->bytes != kQuestionFrame && heard_->bytes != kAnswerFrame) {
      const auto bytes =
          std::size_t(std::clamp(heard_->bytes, 0, std::int32_t(Transport::kMostReason)));
      const auto why = engine::read_error(std::span(heard_->error).first(bytes));
      if (!why) engine::fail(Code::kIo, "a process of the job sent what is no message");
      throw engine::Error(*why);
    }
    ControlFrame message{};
    std::memcpy(&message, heard_.get(), sizeof message);
    std::deque<Transport::ControlMessage>& received = received_controls_[message.to];
    if (received.size() == kMostControlMessages) received.pop_front();
    const bool asks = message.kind == kQuestionFrame;
    received.push_back({message.from,
                        asks ? Transport::ControlKind::kQuestion : Transport::ControlKind::kAnswer,
                        message.plan});
  }

  bool test_oldest(MessageLine& line) {
    Chunk& chunk = line.flight.front();
    PostedMessage& m = *chunk.message;
    int through = 0, kind = MPI_SUCCESS, got = 0;
    MPI_Status status{};
    const int error = MPI_Test(&chunk.request, &through, &status);
    if (error != MPI_SUCCESS) MPI_Error_class(error, &kind);
    if (kind == MPI_ERR_TRUNCATE) wrong_length(line, m);
    check(error, line.sends ? "MPI_Isend" : "MPI_Irecv");
    if (through == 0) return false;
    if (!line.sends) {
      check(MPI_Get_count(&status, MPI_BYTE, &got), "MPI_Get_count");
      if (std::size_t(got) != chunk.bytes) wrong_length(line, m);
      std::uint64_t length = m.bytes;
      if (chunk.header) std::memcpy(&length, m.header.data(), sizeof length);
      if (length != m.bytes) wrong_length(line, m);
    }
    --m.pending;
    line.flight.pop_front();
    if (m.all_posted() && m.pending == 0) {
      through_[std::size_t(m.request)] = true;
      m.request = -1;
    }
    return true;
  }

  [[noreturn]] static void wrong_length(const MessageLine& line, const PostedMessage& m) {
    engine::fail(Code::kInvalid,
                 "a message from rank {} has another length than the {} bytes that "
                 "were expected",
                 line.peer, m.bytes);
  }

  // Sends `why` to all peers and waits briefly until MPI has taken the messages. If it has not,
  // their memory is leaked.
  void tell(const engine::Error& why) {
    auto reason = std::make_unique<Reason>();
    reason->bytes = std::int32_t(engine::write_error(why, reason->error));
    std::vector<MPI_Request> sent;
    for (const int peer : peers_) {
      if (MPI_Isend(reason.get(), int(sizeof *reason), MPI_BYTE, peer, kReasonTag, comm_,
                    &sent.emplace_back(MPI_REQUEST_NULL)) != MPI_SUCCESS)
        sent.pop_back();
    }
    const auto end = Clock::now() + kLastWords;
    int all = 0;
    while (all == 0 && Clock::now() < end) {
      if (MPI_Testall(int(sent.size()), sent.data(), &all, MPI_STATUSES_IGNORE) != MPI_SUCCESS)
        break;
    }
    if (all == 0) [[maybe_unused]]
      const Reason* leaked = reason.release();
  }

  std::shared_ptr<Calls> calls_;
  MPI_Comm comm_;
  std::vector<int> process_, place_;  // per rank: its process, its index there
  std::set<int> peers_;               // processes
  int me_ = 0, most_ = 0, most_tag_ = 32767;
  std::map<Key, MessageLine> lines_;  // a map: chunks point into lines
  std::vector<bool> through_;         // by request
  std::vector<int> free_;
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  std::unique_ptr<Reason> heard_ = std::make_unique<Reason>();
  std::deque<std::pair<MPI_Request, std::unique_ptr<ControlFrame>>> controls_;  // in progress
  // Received control messages, by rank of this process.
  std::map<int, std::deque<Transport::ControlMessage>> received_controls_;
  std::optional<engine::Error> failure_;
  bool closed_ = false;
};

class RankTransport : public Transport {
 public:
  RankTransport(std::shared_ptr<Fabric> fabric, int rank)
      : fabric_(std::move(fabric)), rank_(rank) {}
  int post_send(int peer, int tag, const std::byte* data, std::size_t bytes) override {
    return fabric_->post(rank_, peer, tag, true, const_cast<std::byte*>(data), bytes);
  }
  int post_receive(int peer, int tag, std::byte* data, std::size_t bytes) override {
    return fabric_->post(rank_, peer, tag, false, data, bytes);
  }
  bool test(int request) override { return fabric_->test(request); }
  bool progress() override { return fabric_->progress(); }
  // Sleeps for the whole time, since MPI offers nothing to wake up on.
  void sleep(int microseconds) override {
    const int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, kTimerSlack);
    const timespec time{microseconds / 1'000'000, long(microseconds % 1'000'000) * 1000};
    nanosleep(&time, nullptr);
    if (slack > 0) prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
  }
  void send_control(int peer, ControlKind kind, int plan) noexcept override {
    fabric_->send_control(rank_, peer, kind, plan);
  }
  std::optional<ControlMessage> receive_control() override {
    return fabric_->receive_control(rank_);
  }
  void abort(const engine::Error& why) noexcept override { fabric_->abort(why); }

 private:
  std::shared_ptr<Fabric> fabric_;
  int rank_;
};

}  // namespace

void check(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  engine::fail(Code::kIo, "MPI failed at {}: {}", what,
               std::string_view(text.data(), std::size_t(length)));
}

std::vector<std::unique_ptr<Transport>> connect(std::shared_ptr<Calls> calls, int communicator,
                                                const std::vector<int>& process,
                                                const std::vector<std::pair<int, int>>& pairs) {
  const auto fabric =
      std::make_shared<Fabric>(std::move(calls), MPI_Comm_f2c(communicator), process, pairs);
  std::vector<std::unique_ptr<Transport>> transports;
  for (std::size_t rank = 0; rank < process.size(); ++rank) {
    if (process[rank] == fabric->me())
      transports.push_back(std::make_unique<RankTransport>(fabric, int(rank)));
  }
  return transports;
}

}  // namespace lockstep::collectives::mpi
