// SPDX-License-Identifier: MIT
#include "strategies/launchers/torch_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "collectives/tcp/names.h"

namespace lockstep::strategies::torch_store {
namespace {

using engine::Clock;
using engine::Code;
using engine::fail;

// The messages have the byte order of the machine.
enum class Query : std::uint8_t { kValidate = 0, kSet = 1, kGet = 3, kWait = 6 };
constexpr std::uint32_t kMagic = 0x3C85F7CE;
constexpr std::uint64_t kMostAnswer = 4096;

class Message {
 public:
  explicit Message(Query query) { bytes_.push_back(char(query)); }
  template <class Number>
  Message& number(Number value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Message& text(const std::string& value) {
    number(std::uint64_t(value.size()));
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Store {
 public:
  Store(const std::string& address, Clock::time_point deadline)
      : address_(address),
        deadline_(deadline),
        socket_(collectives::tcp::connect_to(address, deadline)) {}

  void send(const Message& message) {
    for (std::size_t sent = 0; sent < message.bytes().size();) {
      await(POLLOUT);
      const ssize_t wrote = ::send(socket_.file(), message.bytes().data() + sent,
                                   message.bytes().size() - sent, MSG_NOSIGNAL);
      if (wrote < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (wrote < 0) fail_io(std::strerror(errno));
      sent += std::size_t(wrote);
    }
  }

  void receive(void* to, std::size_t bytes) {
    for (std::size_t have = 0; have < bytes;) {
      await(POLLIN);
      const ssize_t got =
          ::recv(socket_.file(), static_cast<char*>(to) + have, bytes - have, MSG_DONTWAIT);
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got <= 0) fail_io(got < 0 ? std::strerror(errno) : "it closed the connection");
      have += std::size_t(got);
    }
  }

  [[noreturn]] void fail_io(const std::string& why) const {
    fail(Code::kIo, "the store of torchrun at {}: {}", address_, why);
  }

 private:
  void await(short events) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    pollfd polled{.fd = socket_.file(), .events = events, .revents = 0};
    if (::poll(&polled, 1, int(std::max<std::int64_t>(0, left.count()))) == 0)
      fail(Code::kTimeout, "the store of torchrun at {} has no address of process 0 in time",
           address_);
  }

  std::string address_;
  Clock::time_point deadline_;
  collectives::tcp::Socket socket_;
};

}  // namespace

std::string from_first(const std::string& address, const std::string& key, bool first,
                       const std::string& value, engine::Clock::time_point deadline) {
  Store store(address, deadline);
  if (first && value.size() > kMostAnswer)
    store.fail_io(
        fmt::format("the addresses of this host take {} bytes, {} are the most: name one "
                    "network with --interface",
                    value.size(), kMostAnswer));
  store.send(Message(Query::kValidate).number(kMagic));
  if (first) {
    store.send(Message(Query::kSet).text(key).text(value));
    return value;
  }
  store.send(Message(Query::kWait).number(std::uint64_t(1)).text(key));
  std::uint8_t answer = 1;
  store.receive(&answer, sizeof answer);
  if (answer != 0) store.fail_io("it ended the wait");
  store.send(Message(Query::kGet).text(key));
  std::uint64_t bytes = 0;
  store.receive(&bytes, sizeof bytes);
  if (bytes > kMostAnswer) store.fail_io(fmt::format("a value of {} bytes", bytes));
  std::string found(bytes, '\0');
  store.receive(found.data(), found.size());
  return found;
}

}  // namespace lockstep::strategies::torch_store
