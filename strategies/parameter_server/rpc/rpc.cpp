// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/rpc.h"

#include <future>
#include <new>

namespace lockstep::strategies::rpc {

Slice owned(const Slice& slice) {
  if (slice.owner || slice.size == 0) return slice;
  const auto copy = std::make_shared<std::vector<std::byte>>(slice.data, slice.data + slice.size);
  return {copy->data(), slice.size, copy};
}

std::size_t bytes_of(const std::vector<Slice>& body) {
  std::size_t bytes = 0;
  for (const Slice& slice : body) bytes += slice.size;
  return bytes;
}

Reply failed(engine::Code code, std::string why) {
  Reply reply;
  reply.code = code;
  reply.why = why.empty() ? std::string(engine::name(code)) : std::move(why);
  return reply;
}

Reply failed(const engine::Error& error) {
  return failed(error.code(), error.what());
}

void answering(const Done& done, const std::function<void()>& work) {
  Reply reply;
  try {
    return work();
  } catch (const engine::Error& error) {
    reply = failed(error);
  } catch (const std::bad_alloc&) {
    reply = failed(engine::Code::kIo, "no memory for this call");
  } catch (const std::exception& error) {
    reply = failed(engine::Code::kInvalid, error.what());
  }
  done(std::move(reply));
}

Message call(Connection& connection, std::string_view method, Message request,
             engine::Clock::time_point deadline) {
  std::promise<Reply> promise;
  std::future<Reply> future = promise.get_future();
  connection.start(method, std::move(request), deadline,
                   [&promise](Reply reply) { promise.set_value(std::move(reply)); });
  Reply reply = future.get();
  if (reply.ok()) return std::move(reply.message);
  engine::fail(reply.code, "{} at {}: {}", method, connection.address(), reply.why);
}

}  // namespace lockstep::strategies::rpc
