// SPDX-License-Identifier: MIT
#include "strategies/grpc/status.h"

#include <grpcpp/support/status.h>

#include <array>

namespace lockstep::strategies::grpc {

namespace {

using engine::Code;
using ::grpc::StatusCode;

// Characters. gRPC refuses more than 8 KiB of metadata, and a byte of text takes up to three there.
constexpr std::size_t kMostText = 2000;

constexpr std::array kCodes = {Code::kInvalid,  Code::kIo,          Code::kMemory,
                               Code::kCorrupt,  Code::kDevice,      Code::kTimeout,
                               Code::kPeerLost, Code::kUnavailable, Code::kAborted};

StatusCode status_code(Code code) {
  switch (code) {
    case Code::kInvalid:
      return StatusCode::INVALID_ARGUMENT;
    case Code::kMemory:
      return StatusCode::RESOURCE_EXHAUSTED;
    case Code::kCorrupt:
      return StatusCode::DATA_LOSS;
    case Code::kTimeout:
      return StatusCode::DEADLINE_EXCEEDED;
    case Code::kPeerLost:
    case Code::kUnavailable:
      return StatusCode::UNAVAILABLE;
    case Code::kAborted:
      return StatusCode::ABORTED;
    case Code::kIo:
    case Code::kDevice:
      return StatusCode::INTERNAL;
  }
  return StatusCode::UNKNOWN;
}

// Returns the code of a status without lockstep's code: an error of gRPC, or of a foreign server.
Code code_of(const ::grpc::Status& status) {
  switch (status.error_code()) {
    case StatusCode::RESOURCE_EXHAUSTED:
      // The message is too large, which a retry cannot change; or memory is short, which it may.
      return status.error_message().find("larger") != std::string::npos ? Code::kInvalid
                                                                        : Code::kUnavailable;
    case StatusCode::UNAVAILABLE:
      return Code::kUnavailable;
    case StatusCode::DEADLINE_EXCEEDED:
      return Code::kTimeout;
    case StatusCode::ABORTED:
    case StatusCode::CANCELLED:
      return Code::kAborted;
    case StatusCode::DATA_LOSS:
      return Code::kCorrupt;
    case StatusCode::INTERNAL:
    case StatusCode::UNKNOWN:
      return Code::kIo;
    default:
      return Code::kInvalid;  // refused
  }
}

// Replaces gRPC's texts about connections by plain ones; other texts are unchanged.
std::string in_words(const std::string& text) {
  constexpr std::string_view kNobody = "Failed to connect to remote host: ";
  if (const std::size_t at = text.rfind(kNobody); at != std::string::npos)
    return "nobody answers there: " + text.substr(at + kNobody.size());
  const auto has = [&](std::string_view part) { return text.find(part) != std::string::npos; };
  if (has("Socket closed") || has("Connection reset by peer") || has("Broken pipe"))
    return "the connection was cut: that task died or was stopped, or it refuses who has no "
           "certificate of its authority";
  if (has("certificate verify failed")) return "its certificate is none of our authority's";
  if (has("wrong version number")) return "it speaks no TLS, and we do";
  if (has("keepalive watchdog timeout")) return "that task fell silent";
  return text;
}

}  // namespace

::grpc::Status status_of(const rpc::Reply& reply) {
  return {status_code(reply.code), reply.why.substr(0, kMostText)};
}

rpc::Reply reply_of(const ::grpc::Status& status, std::string_view code_name) {
  Code code = code_of(status);
  for (const Code ours : kCodes)
    if (engine::name(ours) == code_name) code = ours;
  return rpc::failed(code,
                     code_name.empty() ? in_words(status.error_message()) : status.error_message());
}

}  // namespace lockstep::strategies::grpc
