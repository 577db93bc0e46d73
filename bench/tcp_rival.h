// SPDX-License-Identifier: MIT
// What a remote call is measured against: the same chunks over one plain TCP socket, blocking, with
// nothing around them but 16 bytes. As many chunks may be under way at once as of the rival.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include "collectives/tcp/socket.h"

namespace lockstep::bench {

// Serves one client after the other: takes what is pushed, and hands out pieces of `weights`.
class TcpRivalServer {
 public:
  explicit TcpRivalServer(std::span<const std::byte> weights);
  ~TcpRivalServer();
  int port() const;

 private:
  void run();
  void serve(int file);
  std::span<const std::byte> weights_;
  collectives::tcp::Socket listener_;
  std::thread thread_;
};

class TcpRivalClient {
 public:
  explicit TcpRivalClient(int port);
  // All of it in chunks of this size, of which so many are under way. Throws Error(kIo).
  void push(std::span<const std::byte> from, std::size_t chunk, std::size_t window);
  void pull(std::span<std::byte> to, std::size_t chunk, std::size_t window);

 private:
  collectives::tcp::Socket socket_;
};

}  // namespace lockstep::bench
