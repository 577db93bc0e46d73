// SPDX-License-Identifier: MIT
#include "collectives/tcp/private_socket.h"

#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"

namespace lockstep::collectives::tcp {
namespace {

std::string private_folder() {
  return fmt::format("/tmp/lockstep-{}", geteuid());
}

void require_private(const std::string& folder) {
  if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    engine::fail(engine::Code::kIo, "cannot make the folder {}: {}", folder, std::strerror(errno));
  struct stat found {};
  const bool ours = lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
                    found.st_uid == geteuid() && (found.st_mode & (S_IRWXG | S_IRWXO)) == 0;
  if (!ours)
    engine::fail(engine::Code::kIo,
                 "{} must be a folder of this user that nobody else can enter (chmod 700): "
                 "processes of this host meet in it; with LOCKSTEP_SECRET they do not need it",
                 folder);
}

Socket new_socket() {
  return Socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// Returns whether a process listens at the endpoint. The file of one that died remains.
bool somebody_listens(const Endpoint& at) {
  const Socket socket = new_socket();
  return connect(socket.file(), reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0 ||
         errno != ECONNREFUSED;
}

}  // namespace

std::string private_address(const std::string& name) {
  return fmt::format("unix:{}/{}", private_folder(), name);
}

PrivateListener::PrivateListener(const std::string& address) : socket_(new_socket()) {
  require_private(private_folder());
  const Endpoint at = endpoints(address)[0];
  const auto try_bind = [&] {
    return bind(socket_.file(), reinterpret_cast<const sockaddr*>(&at.address), at.length) == 0;
  };
  fchmod(socket_.file(), S_IRUSR | S_IWUSR);
  bool bound = try_bind();
  if (!bound && errno == EADDRINUSE && !somebody_listens(at)) {
    unlink(at.text.c_str());
    bound = try_bind();
  }
  if (!bound || listen(socket_.file(), SOMAXCONN) != 0)
    engine::fail(engine::Code::kIo, "cannot listen at {}: {}", at.text,
                 errno == EADDRINUSE ? "another job meets there" : std::strerror(errno));
  path_ = at.text;
}

PrivateListener::~PrivateListener() {
  unlink(path_.c_str());
}

bool of_this_user(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(socket.file(), reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  if (address.ss_family != AF_UNIX) return true;
  ucred peer{};
  length = sizeof peer;
  return getsockopt(socket.file(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 &&
         peer.uid == geteuid();
}

}  // namespace lockstep::collectives::tcp
