// SPDX-License-Identifier: MIT
#include "strategies/grpc/connection.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <mutex>
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

constexpr auto kLongestWait = std::chrono::hours(24 * 365);  // limit of gRPC's clocks

gpr_timespec deadline_of(Clock::time_point deadline) {
  const auto left = std::min<Clock::duration>(std::max(deadline - Clock::now(), Clock::duration(0)),
                                              kLongestWait);
  const auto nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(nanoseconds, GPR_TIMESPAN));
}

class ClientCall;

// Calls in flight.
struct ClientCalls {
  std::mutex mutex = {};
  std::condition_variable ended = {};
  std::unordered_set<std::shared_ptr<ClientCall>> open = {};
  bool closing = false;
  TimedWork late;  // answers due while gRPC holds locks
};

// One call. It ends when gRPC has reported its result and no longer reads its bytes: the socket may
// still be sending the bytes of a canceled call.
class ClientCall : public ::grpc::ClientUnaryReactor,
                   public std::enable_shared_from_this<ClientCall> {
 public:
  ClientCall(ClientCalls& calls, rpc::Done done) : calls_(calls), done_(std::move(done)) {}

  void start(::grpc::GenericStub& stub, std::string_view method, const rpc::Message& request,
             Clock::time_point deadline) {
    const auto unowned = [](const rpc::Slice& slice) { return !slice.owner && slice.size > 0; };
    std::shared_ptr<const void> held;
    if (std::any_of(request.body.begin(), request.body.end(), unowned)) {
      ++waits_for_;
      held.reset(this, [call = shared_from_this()](const void*) {
        // gRPC may hold its own locks here, so `done` runs on another thread.
        if (--call->waits_for_ == 0) call->calls_.late.add([call] { call->end(); });
      });
    }
    write(request, held, request_);
    held.reset();
    context_->set_deadline(deadline_of(deadline));
    stub.PrepareUnaryCall(context_.get(), std::string(kService) + std::string(method), {},
                          &request_, &reply_, this);
    StartCall();
  }

  void cancel() {
    std::shared_ptr<::grpc::ClientContext> context;
    {
      const std::lock_guard lock(calls_.mutex);
      context = context_;
    }
    if (context) context->TryCancel();
  }

  void OnDone(const ::grpc::Status& status) override {
    const auto self = shared_from_this();
    result_ = result_of(status);
    request_.Clear();
    // gRPC keeps unsent bytes as long as this lives.
    std::shared_ptr<::grpc::ClientContext> context;
    {
      const std::lock_guard lock(calls_.mutex);
      context.swap(context_);
    }
    context.reset();
    if (--waits_for_ == 0) end();
  }

 private:
  rpc::Reply result_of(const ::grpc::Status& status) {
    if (!status.ok()) {
      const auto& trailers = context_->GetServerTrailingMetadata();
      const auto found = trailers.find(kCodeKey);
      std::string_view code;
      if (found != trailers.end()) code = {found->second.data(), found->second.size()};
      return reply_of(status, code);
    }
    try {
      rpc::Reply reply;
      reply.message = read(reply_);
      return reply;
    } catch (const engine::Error& error) {
      return rpc::failed(error);
    }
  }

  void end() {
    bool closing = false;
    {
      const std::lock_guard lock(calls_.mutex);
      closing = calls_.closing;
    }
    if (closing && !result_.ok())
      result_ = rpc::failed(Code::kAborted, "the connection was closed");
    done_(std::move(result_));
    done_ = nullptr;
    // Nothing may use `calls_` below: the connection's destructor waits for this.
    const std::lock_guard lock(calls_.mutex);
    calls_.open.erase(shared_from_this());
    calls_.ended.notify_all();
  }

  ClientCalls& calls_;
  rpc::Done done_;
  std::shared_ptr<::grpc::ClientContext> context_ = std::make_shared<::grpc::ClientContext>();
  ::grpc::ByteBuffer request_, reply_;
  rpc::Reply result_;
  std::atomic<int> waits_for_ = 1;  // the status, and slices without an owner
};

std::shared_ptr<::grpc::ChannelCredentials> client_credentials(const ConnectOptions& options) {
  if (options.tls.none()) return ::grpc::InsecureChannelCredentials();
  TlsTexts texts = read(options.tls);
  ::grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = std::move(texts.authority);
  ssl.pem_private_key = std::move(texts.key);
  ssl.pem_cert_chain = std::move(texts.certificate);
  return ::grpc::SslCredentials(ssl);
}

// Milliseconds. A lost connection is retried after the first pause, later after at most the longest
// one; an attempt may take `kAttempt`.
constexpr int kFirstPause = 200, kLongestPause = 1000, kAttempt = 2000;

::grpc::ChannelArguments arguments(const ConnectOptions& options) {
  engine::require(options.most_message_bytes <= std::size_t(std::numeric_limits<int>::max()),
                  "a message of {} bytes is more than gRPC can have", options.most_message_bytes);
  ::grpc::ChannelArguments arguments;
  for (const auto& [name, value] : arguments_of_client()) arguments.SetInt(name, value);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstPause);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestPause);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kAttempt);  // the time of an attempt
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);        // a connection of its own
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);     // Retry knows what may be repeated
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // tasks of a job reach each other
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetMaxReceiveMessageSize(int(options.most_message_bytes));
  arguments.SetMaxSendMessageSize(int(options.most_message_bytes));
  if (!options.server_name.empty()) arguments.SetSslTargetNameOverride(options.server_name);
  return arguments;
}

class GrpcConnection : public rpc::Connection {
 public:
  GrpcConnection(const std::string& address, const ConnectOptions& options)
      : address_(to_string(parse_host_port(address))),
        stub_(::grpc::CreateCustomChannel(address_, client_credentials(options),
                                          arguments(options))) {}

  ~GrpcConnection() override {
    std::unique_lock lock(calls_.mutex);
    calls_.closing = true;
    const auto open = calls_.open;
    lock.unlock();
    for (const auto& call : open) call->cancel();
    lock.lock();
    // This wait ends: gRPC answers a canceled call at once, and keep-alive frees a stuck socket.
    calls_.ended.wait(lock, [this] { return calls_.open.empty(); });
  }

  void start(std::string_view method, rpc::Message request, Clock::time_point deadline,
             rpc::Done done) override {
    const auto call = std::make_shared<ClientCall>(calls_, std::move(done));
    {
      const std::lock_guard lock(calls_.mutex);
      calls_.open.insert(call);
    }
    call->start(stub_, method, request, deadline);
  }

  std::string address() const override { return address_; }

 private:
  std::string address_;
  ClientCalls calls_;
  ::grpc::GenericStub stub_;
};

}  // namespace

std::unique_ptr<rpc::Connection> connect(const std::string& address,
                                         const ConnectOptions& options) {
  keep_freed_memory();
  require_threads();
  return std::make_unique<GrpcConnection>(address, options);
}

}  // namespace lockstep::strategies::grpc
