// SPDX-License-Identifier: MIT
// A socket that closes itself, and the few system calls around it. Move-only; sockets never block.
// Any thread.
#pragma once
#include <sys/socket.h>

#include <string>
#include <vector>

namespace lockstep::collectives::tcp {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept;
  Socket& operator=(Socket&& other) noexcept;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket();
  int file() const { return file_; }  // -1: none
  explicit operator bool() const { return file_ >= 0; }

 private:
  int file_ = -1;
};

// Where to connect to.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string text;  // "10.0.0.1:35012"
};

// Of "10.0.0.1,fd00::1:35012": numbers, no names. Throws Error(kInvalid).
std::vector<Endpoint> endpoints(const std::string& address);
// The addresses of this host that others can use, IPv4 first; loopback where there are none. Of one
// interface where it is named, loopback too: Error(kInvalid) lists the interfaces that there are.
std::vector<std::string> local_addresses(const std::string& interface = {});
// The ports that may be listened on; 0 and 0: whichever the system picks.
struct Ports {
  int first = 0, last = 0;
};
// Returns one listening socket an address, all at one port. Skips a port that another process
// listens on, and an address that cannot be used yet, such as an IPv6 address that the kernel still
// checks. Throws Error(kIo) if no address is left or no port is free.
std::vector<Socket> listen_on(const std::vector<std::string>& addresses, Ports ports);
int port_of(const Socket& socket);
// "10.0.0.1:35012", "[fd00::1]:35012"; an IPv4 address inside an IPv6 one as IPv4. Empty for a
// socket of another family and, of the remote end, for one that is not connected.
std::string local_endpoint(const Socket& socket);
std::string remote_endpoint(const Socket& socket);
// Sends at once, and asks a silent peer for a sign of life after a second, three times, so that an
// idle connection with a dead host ends after four.
void tune(const Socket& socket);

}  // namespace lockstep::collectives::tcp
