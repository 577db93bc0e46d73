// SPDX-License-Identifier: MIT
// One rank's end of one connection: frames {magic, tag, bytes} and their contents. Sends are queued
// and written as far as the socket accepts them. Receives go straight into the posted memory if the
// post came first. A message that came first is kept, up to `most_kept` bytes per connection; then
// nothing is read until its receive is posted. (A peer may be ahead: it sends for plan B while this
// rank, before it posts B, waits for plan A on the same connection. If B was not read, A would
// never arrive.)
//
// A last frame says that the peer ended in order, or why it stops. An end without it, or silence,
// is a loss. After an error every call throws it again. One thread at a time. Allocates nothing in
// a steady state.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "collectives/run/transport.h"
#include "collectives/tcp/socket.h"
#include "engine/base/error.h"

namespace lockstep::collectives::tcp {

struct FrameHeader {
  std::uint32_t magic = 0, tag = 0;
  std::uint64_t bytes = 0;
};
static_assert(sizeof(FrameHeader) == 16);

class Connection {
 public:
  static constexpr std::size_t kMostKept = std::size_t(64) << 20;

  // Takes over the socket. `peer`: the rank at the other end, on `host`; for errors.
  Connection(Socket socket, int peer, const std::string& host, std::size_t most_kept = kMostKept);
  ~Connection();  // sends the shutdown if nothing is pending
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Both append the numbers of completed requests to `through`.
  void post_send(int request, int tag, const std::byte* data, std::size_t bytes,
                 std::vector<int>& through);
  void post_receive(int request, int tag, std::byte* data, std::size_t bytes,
                    std::vector<int>& through);
  // Moves what can move; `readable` and `writable` are from poll. Returns whether anything moved.
  bool progress(bool readable, bool writable, std::vector<int>& through);
  // Implements Transport. Only the last few control messages of the peer are kept.
  void send_control(Transport::ControlKind kind, int plan, std::vector<int>& through) noexcept;
  std::optional<std::pair<Transport::ControlKind, int>> receive_control();
  // Stops this end. Its last frame says why, behind the rest of a message that is half sent. `why`
  // is an error (engine/base/error_bytes.h). It outlives the frame: until `tells` returns false or
  // `shut` is called. Nothing blocks here. While `tells` returns true, the peer's host has not
  // received all. Then the socket is to be polled for `events`, and for input, which is discarded.
  void begin_abort(std::span<const std::byte> why) noexcept;
  bool tells() noexcept;
  void shut() noexcept;  // drops what the socket has not taken
  // Throws the connection's error, if there is one.
  void rethrow() const;

  int file() const { return failure_ || closed_ ? -1 : socket_.file(); }
  short events() const;  // events to poll for
  bool reading() const { return !failure_ && !closed_ && incoming_.has_value(); }
  bool pending() const {
    return !sends_.empty() || !posts_.empty() || (incoming_ && incoming_->request >= 0);
  }

 private:
  struct Send {
    int request;  // -1: nobody tests for it
    FrameHeader header;
    const std::byte* data;
    std::size_t sent = 0;  // bytes of header and data together
  };
  struct Post {
    int request, tag;
    std::byte* data;
    std::size_t bytes;
  };
  // Holds a message that came before its post.
  struct Kept {
    int tag;
    std::size_t bytes;
    std::unique_ptr<std::byte[]> data;
  };
  // Describes the message that is being read.
  struct Incoming {
    int tag = 0, request = -1;  // -1: no post yet, `kept` holds it
    std::byte* data = nullptr;
    std::size_t bytes = 0, got = 0;
    std::unique_ptr<std::byte[]> kept = {};
    bool reason = false;  // the peer's reason to stop, no message
  };

  bool write(std::vector<int>& through);
  bool read(std::vector<int>& through);
  bool read_all(std::vector<int>& through);
  void ask_for_wake();
  void take(std::size_t bytes, std::vector<int>& through);
  void begin(std::vector<int>& through);
  void end(std::vector<int>& through);
  bool keep();
  void check_length(int tag, std::size_t sent, std::size_t posted);
  void check_silence();
  bool drain() noexcept;
  [[noreturn]] void lose(const std::string& why);
  [[noreturn]] void lose(int error);
  [[noreturn]] void has_left();
  [[noreturn]] void fail_with(const engine::Error& error);

  Socket socket_;
  int peer_;
  std::string who_;  // "rank 5 on host h2"
  std::vector<Send> sends_;
  std::vector<Post> posts_;
  std::vector<Kept> kept_;
  std::size_t most_kept_, kept_bytes_ = 0;
  FrameHeader header_{};
  std::size_t header_got_ = 0;
  std::optional<Incoming> incoming_;
  bool stalled_ = false;  // header_ is whole and waits for its post
  int wakes_at_ = 1;      // bytes that make the socket readable
  std::vector<std::pair<Transport::ControlKind, int>> controls_;
  bool shut_down_ = false, closed_ = false;
  std::optional<engine::Error> failure_;
  engine::Clock::time_point next_look_{};
  bool was_silent_ = false;
};

}  // namespace lockstep::collectives::tcp
