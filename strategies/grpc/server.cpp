// SPDX-License-Identifier: MIT
#include "strategies/grpc/server.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_set>

#include "strategies/grpc/byte_buffer.h"
#include "strategies/grpc/channel_arguments.h"
#include "strategies/grpc/library_threads.h"
#include "strategies/grpc/status.h"
#include "strategies/parameter_server/rpc/host_port.h"
#include "strategies/parameter_server/rpc/timed_work.h"

namespace lockstep::strategies::grpc {

namespace {

using engine::Clock;
using engine::Code;
using engine::Error;

// Shows the service the client of a call. It outlives the call.
class Client : public rpc::Caller {
 public:
  explicit Client(std::string peer) : peer_(std::move(peer)) {}
  std::string peer() const override { return peer_; }
  bool gone() const override { return gone_; }
  void leave() { gone_ = true; }

 private:
  std::string peer_;
  std::atomic<bool> gone_ = false;
};

class ServerCall;

// Calls in flight. The server's end answers them, and those that arrive too late fail.
struct ServerCalls {
  ServerCalls(rpc::Service& whom, int threads) : service(whom), work(threads) {}
  rpc::Service& service;
  std::mutex mutex = {};
  std::unordered_set<ServerCall*> open = {};
  TimedWork work;  // calls of the service
};

// One call: a message arrives, the service answers, the answer is sent. gRPC owns it until OnDone,
// and each holder of `done` shares it. The caller receives the first result: the service's, the
// caller's death or the server's end.
class ServerCall : public ::grpc::ServerGenericBidiReactor,
                   public std::enable_shared_from_this<ServerCall> {
 public:
  ServerCall(::grpc::GenericCallbackServerContext& context, ServerCalls& calls)
      : context_(context), calls_(calls), client_(std::make_shared<Client>(context.peer())) {}

  void begin() {
    self_ = shared_from_this();
    {
      const std::lock_guard lock(calls_.mutex);
      calls_.open.insert(this);
    }
    if (!context_.method().starts_with(kService)) {
      refuse(::grpc::StatusCode::UNIMPLEMENTED, "there is no method " + context_.method());
    } else {
      method_ = context_.method().substr(kService.size());
      StartRead(&in_);
    }
  }

  void refuse(::grpc::StatusCode code, const std::string& why) {
    if (!finished_.exchange(true)) Finish({code, why});
  }

  void finish(rpc::Reply reply) {
    if (finished_.exchange(true)) return;
    if (!reply.ok()) {
      context_.AddTrailingMetadata(kCodeKey, std::string(engine::name(reply.code)));
      Finish(status_of(reply));
      return;
    }
    write(reply.message, nullptr, out_);
    StartWriteAndFinish(&out_, ::grpc::WriteOptions(), ::grpc::Status::OK);
  }

  void OnReadDone(bool ok) override {
    arrived_ = true;
    if (!ok) return finish(rpc::failed(Code::kInvalid, "no message came"));
    try {
      // Parsing here makes the request independent of the buffer.
      calls_.work.add([call = shared_from_this(), request = read(in_)]() mutable {
        call->serve(std::move(request));
      });
      in_.Clear();
    } catch (const Error& error) {
      finish(rpc::failed(error));
    }
  }

  bool late(Clock::time_point begun_before) const { return !arrived_ && begun_ < begun_before; }

  void OnCancel() override {
    client_->leave();
    finish(rpc::failed(Code::kAborted, "the caller is gone"));
  }

  void OnDone() override {
    client_->leave();
    {
      const std::lock_guard lock(calls_.mutex);
      calls_.open.erase(this);
    }
    self_.reset();
  }

 private:
  void serve(rpc::Message request) {
    if (finished_) return;
    calls_.service.call(
        method_, std::move(request), client_,
        [call = shared_from_this()](rpc::Reply reply) { call->finish(std::move(reply)); });
  }

  ::grpc::GenericCallbackServerContext& context_;  // owned by gRPC, valid until OnDone
  ServerCalls& calls_;
  std::string method_ = {};
  const Clock::time_point begun_ = Clock::now();
  std::atomic<bool> arrived_ = false;
  std::shared_ptr<Client> client_;
  std::shared_ptr<ServerCall> self_ = {};
  ::grpc::ByteBuffer in_, out_;
  std::atomic<bool> finished_ = false;
};

constexpr auto kBetweenLooks = std::chrono::seconds(1);  // interval of checks for late messages

class GenericService : public ::grpc::CallbackGenericService {
 public:
  GenericService(rpc::Service& service, int threads, Clock::duration arrival)
      : arrival_(arrival), calls_(service, threads) {
    look_for_late_ones();
  }
  ::grpc::ServerGenericBidiReactor* CreateReactor(
      ::grpc::GenericCallbackServerContext* context) override {
    const auto call = std::make_shared<ServerCall>(*context, calls_);
    call->begin();
    return call.get();
  }
  void fail_all(const std::string& why) {
    fail(why, [](const ServerCall&) { return true; });
  }

 private:
  template <class Which>
  void fail(const std::string& why, Which which) {
    std::vector<std::shared_ptr<ServerCall>> calls;
    {
      const std::lock_guard lock(calls_.mutex);
      for (ServerCall* call : calls_.open)
        if (which(*call)) calls.push_back(call->shared_from_this());
    }
    for (const auto& call : calls) call->finish(rpc::failed(Code::kUnavailable, why));
  }

  void look_for_late_ones() {
    const auto now = Clock::now();
    fail("the message had not arrived in time",
         [before = now - arrival_](const ServerCall& call) { return call.late(before); });
    clock_.add(now + std::min<Clock::duration>(arrival_, kBetweenLooks),
               [this] { look_for_late_ones(); });
  }

  Clock::duration arrival_;
  ServerCalls calls_;
  TimedWork clock_;
};

std::shared_ptr<::grpc::ServerCredentials> server_credentials(const ServeOptions& options) {
  if (options.tls.none()) return ::grpc::InsecureServerCredentials();
  TlsTexts texts = read(options.tls);
  ::grpc::SslServerCredentialsOptions ssl(
      GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  ssl.pem_root_certs = std::move(texts.authority);
  ssl.pem_key_cert_pairs.push_back({std::move(texts.key), std::move(texts.certificate)});
  return ::grpc::SslServerCredentials(ssl);
}

int processors() {
  return int(std::max(2u, std::thread::hardware_concurrency()));
}

// Returns why the address cannot be listened on. gRPC does not report this, so the function tries
// to bind again and returns the system's error.
std::string why_not(const HostPort& address) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  const int unknown =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (unknown != 0) return gai_strerror(unknown);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  const int handle = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const bool bound =
      ::bind(handle, found->ai_addr, found->ai_addrlen) == 0 && ::listen(handle, 1) == 0;
  const std::string why = bound ? "another task had it a moment ago" : std::strerror(errno);
  ::close(handle);
  return why;
}

constexpr std::chrono::minutes kPodNames{10};
constexpr std::chrono::milliseconds kPodNamePause{200};

// Waits in a pod until its own name resolves, which a cluster's name server tells it late.
void wait_for_name(const HostPort& address) {
  if (std::getenv("KUBERNETES_SERVICE_HOST") == nullptr) return;
  const auto end = engine::Clock::now() + kPodNames;
  addrinfo* found = nullptr;
  while (getaddrinfo(address.host.c_str(), nullptr, nullptr, &found) != 0) {
    if (engine::Clock::now() >= end) return;  // listening says what is wrong
    std::this_thread::sleep_for(kPodNamePause);
  }
  freeaddrinfo(found);
}

class GrpcServer : public Server {
 public:
  GrpcServer(rpc::Service& service, const ServeOptions& options)
      : host_(parse_host_port(options.address, kAnyPort)),
        generic_(service, options.threads > 0 ? options.threads : processors(), options.arrival) {
    engine::require(!options.tls.none() || options.insecure || host_.loopback(),
                    engine::Option::kInsecure,
                    "serving at {} without TLS would let everybody who reaches it read and change "
                    "the model: give the three TLS files, or say that it is meant to be insecure",
                    options.address);
    engine::require(options.most_message_bytes <= std::size_t(std::numeric_limits<int>::max()),
                    "a message of {} bytes is more than gRPC can have", options.most_message_bytes);
    wait_for_name(host_);
    // gRPC keeps this setting for the whole process.
    ::grpc::EnableDefaultHealthCheckService(true);
    ::grpc::ServerBuilder builder;
    for (const auto& [name, value] : arguments_of_server()) builder.AddChannelArgument(name, value);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a port that is taken is an error
    builder.SetMaxReceiveMessageSize(int(options.most_message_bytes));
    builder.SetMaxSendMessageSize(-1);
    builder.SetResourceQuota(::grpc::ResourceQuota("lockstep").Resize(options.most_memory_bytes));
    builder.RegisterCallbackGenericService(&generic_);
    builder.AddListeningPort(options.address, server_credentials(options), &port_);
    server_ = builder.BuildAndStart();
    if (!server_ || port_ == 0)
      engine::fail(Code::kIo, "cannot listen at {}: {}", options.address, why_not(host_));
  }

  ~GrpcServer() override {
    generic_.fail_all("the server ends");
    // gRPC cancels calls that begin between these lines.
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  }

  std::string address() const override {
    return to_string(HostPort{host_.host, std::uint16_t(port_)});
  }
  int port() const override { return port_; }
  void healthy(bool is) override { server_->GetHealthCheckService()->SetServingStatus(is); }

 private:
  HostPort host_;
  int port_ = 0;
  GenericService generic_;
  std::unique_ptr<::grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Server> serve(rpc::Service& service, const ServeOptions& options) {
  keep_freed_memory();
  require_threads();
  return std::make_unique<GrpcServer>(service, options);
}

}  // namespace lockstep::strategies::grpc
