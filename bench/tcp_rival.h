// SPDX-License-Identifier: MIT
// The baseline for remote calls: the same chunks over one plain TCP socket, blocking, with 16 bytes
// of header. As many chunks may be in flight as with remote calls.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>

#include "collectives/tcp/socket.h"

namespace lockstep::bench {

// Serves one client after the other: receives pushed chunks, and sends pieces of `weights`.
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
  // Moves all bytes in chunks of this size, with up to `window` chunks in flight. Throws
  // Error(kIo).
  void push(std::span<const std::byte> from, std::size_t chunk, std::size_t window);
  void pull(std::span<std::byte> to, std::size_t chunk, std::size_t window);

 private:
  collectives::tcp::Socket socket_;
};

}  // namespace lockstep::bench
