// SPDX-License-Identifier: MIT
// Sockets by which processes of one user meet on one host without a secret. They lie in a folder
// that only this user can enter, and both ends check that the peer is of the same user. Linux only.
#pragma once
#include <string>

#include "collectives/tcp/socket.h"

namespace lockstep::collectives::tcp {

// Returns the address of the socket with this name: "unix:/tmp/lockstep-1000/NAME".
std::string private_address(const std::string& name);

// Listens at such an address, and removes the socket's file at the end. Not thread-safe.
class PrivateListener {
 public:
  // Makes the folder. Throws Error(kIo) if the folder belongs to another user or is open to others,
  // and if another process listens at the address.
  explicit PrivateListener(const std::string& address);
  ~PrivateListener();
  PrivateListener(const PrivateListener&) = delete;
  PrivateListener& operator=(const PrivateListener&) = delete;
  const Socket& socket() const { return socket_; }

 private:
  std::string path_;
  Socket socket_;
};

// Returns whether the peer of a connected socket may take part: it is reached over a network, or it
// is a process of this user.
bool of_this_user(const Socket& socket);

}  // namespace lockstep::collectives::tcp
