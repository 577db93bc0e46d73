// SPDX-License-Identifier: MIT
// One end of a connection of the bootstrap: frames of a kind, the hash of an exchange's name, and
// bytes. Writes and reads what the socket takes at once; never blocks. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/tcp/socket.h"

namespace lockstep::collectives::tcp {

class ControlLink {
 public:
  enum class Kind : std::uint32_t { kValue = 1, kAll, kError };
  struct Frame {
    Kind kind = Kind::kValue;
    std::uint32_t what = 0;
    std::string bytes = {};
  };

  // Takes over the socket. `most`: the largest frame that is accepted, in bytes.
  ControlLink(Socket socket, std::string host, std::size_t most);
  void send(Kind kind, std::uint32_t what, std::string_view bytes);
  // Moves what can move. Returns false once the peer has closed, or sent something invalid, and all
  // its frames have been received.
  bool progress();
  // Returns the next whole frame, if there is one.
  std::optional<Frame> receive();
  bool sending() const { return sent_ < out_.size(); }
  int file() const { return socket_.file(); }
  const std::string& host() const { return host_; }  // that the peer named

 private:
  struct Head {
    std::uint32_t magic, kind, what, bytes;
  };
  static constexpr std::uint32_t kMagic = 0x3254534c;
  bool write_out();
  bool read_in();
  std::optional<Head> head() const;
  bool whole() const;  // a frame has arrived

  Socket socket_;
  std::string host_;
  std::size_t most_;
  std::string out_, in_;
  std::size_t sent_ = 0;
  bool open_ = true;
};

}  // namespace lockstep::collectives::tcp
