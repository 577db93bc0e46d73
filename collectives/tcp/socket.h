// SPDX-License-Identifier: MIT
// A socket that closes itself, and the few system calls around it. Move-only. Sockets never block.
// Thread-safe.
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

// Holds an address to connect to.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string text;  // "10.0.0.1:35012"
};

// Returns the endpoints of "10.0.0.1,fd00::1:35012" (numbers, no names), or of "unix:PATH". Throws
// Error(kInvalid).
std::vector<Endpoint> endpoints(const std::string& address);
// Returns the addresses of this host that others can use, IPv4 first, or loopback if there are
// none. If `interface` is given, returns only its addresses, even if it is loopback. Throws
// Error(kInvalid), which lists the interfaces, if there is no such interface, and if it has no
// usable address.
std::vector<std::string> local_addresses(const std::string& interface = {});
// Limits the ports to listen on; 0 and 0: any that the system picks.
struct Ports {
  int first = 0, last = 0;
};
// Returns one listening socket per address, all at one port. Skips a port that another process
// listens on, and an address that cannot be used yet, as an IPv6 address that the kernel still
// checks. Throws Error(kIo) if no address is left or no port is free.
std::vector<Socket> listen_on(const std::vector<std::string>& addresses, Ports ports);
int port_of(const Socket& socket);
// Each returns an endpoint, "10.0.0.1:35012" or "[fd00::1]:35012". An IPv4 address inside an IPv6
// one appears as IPv4. The text is empty for a socket of another family. The remote one is also
// empty for a socket that is not connected.
std::string local_endpoint(const Socket& socket);
std::string remote_endpoint(const Socket& socket);
// Sets a socket to send at once, and to probe a silent peer after one second, three times. So an
// idle connection with a dead host ends after four seconds.
void tune(const Socket& socket);

}  // namespace lockstep::collectives::tcp
