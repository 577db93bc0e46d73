// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/rpc/shared_connection.h"

#include <atomic>
#include <cstring>

#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/rpc/shared_service.h"

namespace lockstep::strategies::rpc {

using engine::Code;

struct SharedConnection::State {
  State(engine::Log where, std::string whom) : log(std::move(where)), address(std::move(whom)) {}
  engine::Log log;
  const std::string address;
  std::atomic<bool> off = false;
  std::atomic<std::size_t> bytes = 0;

  void give_up(const std::string& why) {
    if (!off.exchange(true))
      log.info("{}: bodies of messages go through sockets, not through memory: {}", address, why);
  }

  Reply reply_of(Reply reply, const std::shared_ptr<SharedBlocks::Block>& block,
                 std::size_t answer_at) {
    SharedReply head;
    if (reply.ok() && !head.ParseFromString(reply.message.head))
      reply = failed(Code::kCorrupt, "the answer cannot be read");
    if (reply.ok() && !head.refused().empty()) {
      give_up(head.refused());
      reply = failed(Code::kUnavailable, head.refused());
    }
    const collectives::MappedMemory& memory = block->memory();
    if (reply.ok() && head.body_bytes() > memory.bytes() - answer_at)
      reply = failed(Code::kCorrupt, "the answer says that it is larger than its place");
    if (!reply.ok()) {
      block->spoil();
      return reply;
    }
    reply.message.head = std::move(*head.mutable_head());
    const std::size_t size = head.body_bytes();
    if (size > 0) reply.message.body.assign(1, {memory.data() + answer_at, size, block});
    bytes += size;
    return reply;
  }
};

SharedConnection::SharedConnection(std::unique_ptr<Connection> connection, engine::Log log,
                                   const SharedOptions& options)
    : least_(options.least),
      state_(std::make_shared<State>(std::move(log), connection->address())),
      blocks_(options.most),
      connection_(std::move(connection)) {}

SharedConnection::~SharedConnection() = default;

std::size_t SharedConnection::shared_bytes() const {
  return state_->bytes;
}

void SharedConnection::start(std::string_view method, Message request,
                             engine::Clock::time_point deadline, Done done) {
  const std::size_t body = request.body_bytes(), answer_at = SharedService::answer_at(body);
  std::shared_ptr<SharedBlocks::Block> block;
  if (body + request.answer_bytes >= least_ && !state_->off) {
    try {
      block = blocks_.take(answer_at + request.answer_bytes);
    } catch (const engine::Error& error) {
      state_->give_up(error.what());
    }
  }
  if (!block) return connection_->start(method, std::move(request), deadline, std::move(done));
  std::byte* to = block->memory().data();
  for (const Slice& slice : request.body) {
    if (slice.size > 0) std::memcpy(to, slice.data, slice.size);
    to += slice.size;
  }
  state_->bytes += body;
  SharedRequest head;
  head.set_method(std::string(method));
  head.set_head(std::move(request.head));
  head.set_memory(to_text(block->memory().address()));
  head.set_body_bytes(body);
  head.set_answer_bytes(request.answer_bytes);
  connection_->start(
      SharedService::kMethod, {head.SerializeAsString(), {}}, deadline,
      [state = state_, block, answer_at, done = std::move(done)](Reply reply) mutable {
        // The block is released here, because the inner connection may keep this lambda longer.
        const auto held = std::move(block);
        done(state->reply_of(std::move(reply), held, answer_at));
      });
}

}  // namespace lockstep::strategies::rpc
