// SPDX-License-Identifier: MIT
// A proxy between a client and a server on loopback that simulates the network. It can fall silent,
// like a cut cable, or end all connections, like the death of a peer.
#pragma once
#include <atomic>
#include <cstdint>
#include <list>
#include <string>
#include <thread>

#include "collectives/tcp/socket.h"

namespace lockstep::test {

class TcpProxy {
 public:
  explicit TcpProxy(int server_port);
  ~TcpProxy();
  std::string address() const;  // where clients connect to

  void silent(bool is) { silent_ = is; }  // stops all reads, writes and accepts
  bool is_silent() const { return silent_; }
  // Falls silent after clients have sent `bytes` more bytes.
  void silent_after(std::uint64_t bytes) { left_ = std::int64_t(bytes); }
  void cut();  // ends all connections; blocks until done

  std::uint64_t from_clients() const { return from_clients_; }  // bytes
  // Starts to count the clients' bytes with this value.
  void count(std::uint8_t value) { counted_ = value, count_ = 0; }
  std::uint64_t counted() const { return count_; }

 private:
  struct Pair {
    collectives::tcp::Socket client, server;
    std::string to_server = {}, to_client = {};
    bool ended = false;
  };
  void run();
  void accept_one();
  void forward(Pair& pair);
  bool move(int from, int to, std::string& waiting, bool of_client);

  int server_port_;
  collectives::tcp::Socket listener_;
  std::list<Pair> pairs_;
  std::atomic<bool> silent_ = false, end_ = false;
  std::atomic<int> cuts_ = 0, cuts_done_ = 0;
  std::atomic<std::int64_t> left_ = INT64_MAX;
  std::atomic<std::uint64_t> from_clients_ = 0, count_ = 0;
  std::atomic<int> counted_ = -1;
  std::thread thread_;
};

}  // namespace lockstep::test
