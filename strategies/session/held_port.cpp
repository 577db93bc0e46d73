// SPDX-License-Identifier: MIT
#include "strategies/session/held_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "engine/base/error.h"

namespace lockstep::strategies {

// The socket is bound but does not listen. With SO_REUSEADDR, which servers also set, another
// socket may bind to the port and listen. The system does not give the port to programs that ask
// for any.
HeldPort::HeldPort(bool loopback) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  socklen_t length = sizeof(address);
  const int yes = 1;
  auto* const where = reinterpret_cast<sockaddr*>(&address);
  const bool held = socket_ >= 0 &&
                    setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
                    bind(socket_, where, length) == 0 && getsockname(socket_, where, &length) == 0;
  if (!held) {
    const int error = errno;
    if (socket_ >= 0) close(socket_);
    engine::fail(engine::Code::kIo, "no free port: {}", std::generic_category().message(error));
  }
  port_ = ntohs(address.sin_port);
}

HeldPort::~HeldPort() {
  close(socket_);
}

}  // namespace lockstep::strategies
