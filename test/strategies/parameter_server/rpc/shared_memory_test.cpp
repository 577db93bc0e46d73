// SPDX-License-Identifier: MIT
// Bodies of calls travel in memory that two tasks of a host map. Here both tasks are this process,
// which maps the memory at two addresses.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <condition_variable>
#include <future>
#include <thread>

#include "engine/base/random.h"
#include "strategies/parameter_server/rpc/in_process.h"
#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/rpc/retry.h"
#include "strategies/parameter_server/rpc/shared_connection.h"
#include "strategies/parameter_server/rpc/shared_service.h"
#include "test/fuzz/damage.h"
#include "test/strategies/parameter_server/rpc/echo_service.h"

namespace lockstep::test {
namespace shared_memory_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using engine::Log;
using namespace strategies::rpc;
using collectives::MappedMemory;

constexpr auto kLong = 60s;  // reached only by a defect
constexpr std::size_t kMega = std::size_t(1) << 20;

// Counts the bytes of bodies that travel between two tasks in both directions.
class Wire : public Service {
 public:
  explicit Wire(Service& service) : service_(service) {}
  void call(std::string_view method, Message request, std::shared_ptr<const Caller> caller,
            Done done) override {
    bytes += request.body_bytes();
    if (refuses && method == SharedService::kMethod) {
      strategies::rpc::Reply reply;
      lockstep::SharedReply head;
      head.set_refused("no such memory here");
      reply.message.head = head.SerializeAsString();
      return done(std::move(reply));
    }
    service_.call(method, std::move(request), std::move(caller), [this, done](Reply reply) {
      bytes += reply.message.body_bytes();
      done(std::move(reply));
    });
  }
  std::atomic<std::size_t> bytes = 0;
  std::atomic<bool> refuses = false;

 private:
  Service& service_;
};

// Holds the request of "Keep" and reads its body until the test answers.
class Keeper : public Service {
 public:
  explicit Keeper(Service& others) : others_(others) {}
  void call(std::string_view method, Message request, std::shared_ptr<const Caller> caller,
            Done done) override {
    if (method != "Keep")
      return others_.call(method, std::move(request), std::move(caller), std::move(done));
    const std::scoped_lock lock(mutex_);
    kept_ = std::move(request);
    done_ = std::move(done);
    came_.notify_all();
  }
  std::string body() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(came_.wait_for(lock, kLong, [&] { return done_ != nullptr; }));
    return body_of(kept_);
  }
  void answer() {
    Reply reply;
    reply.message = message_of("late", kept_.body_bytes(), 99);
    done_(std::move(reply));
  }

 private:
  Service& others_;
  std::mutex mutex_;
  std::condition_variable came_;
  Message kept_;
  Done done_;
};

class SharedMemory : public testing::Test {
 protected:
  std::unique_ptr<SharedConnection> connect(const SharedOptions& options = {}) {
    return std::make_unique<SharedConnection>(
        std::make_unique<InProcess>(wire_),
        Log("", Log::Level::kInfo,
            [this](auto, std::string_view line) { lines_.emplace_back(line); }),
        options);
  }
  static std::future<Reply> start(Connection& connection, std::string_view method, Message request,
                                  Clock::duration within = kLong) {
    auto promise = std::make_shared<std::promise<Reply>>();
    connection.start(method, std::move(request), Clock::now() + within,
                     [promise](Reply reply) { promise->set_value(std::move(reply)); });
    return promise->get_future();
  }
  // Returns a request for "Echo" with room for its answer.
  static Message message(std::size_t bytes, std::uint64_t seed, std::size_t slices = 1) {
    Message message = message_of("head", bytes, seed, slices);
    message.answer_bytes = bytes;
    return message;
  }

  EchoService echo_;
  Keeper keeper_{echo_};
  SharedService service_{keeper_};
  Wire wire_{service_};
  std::vector<std::string> lines_;
};

TEST_F(SharedMemory, BodiesOfBothWaysGoThroughItAndNotByTheConnection) {
  const auto connection = connect();
  for (const std::size_t bytes : {std::size_t(100000), kMega + 1, 9 * kMega}) {
    const Message sent = message(bytes, bytes, 3);
    const Reply reply = start(*connection, "Echo", sent).get();
    ASSERT_TRUE(reply.ok()) << reply.why;
    EXPECT_EQ(reply.message.head, "head");
    EXPECT_TRUE(body_of(reply.message) == body_of(sent));
  }
  EXPECT_EQ(wire_.bytes, 0u);
  EXPECT_EQ(connection->shared_bytes(), 2 * (100000 + 10 * kMega + 1));
  EXPECT_THAT(lines_, testing::IsEmpty());
}

TEST_F(SharedMemory, WhatHasNoPlaceThereGoesByTheConnection) {
  const auto connection = connect({.most = 4 * kMega});
  Message no_place = message(kMega, 1);
  no_place.answer_bytes = kMega - 1;
  const Message few = message(1000, 2), many = message(5 * kMega, 3);
  const auto goes = [&](const Message& sent, std::size_t by_the_wire) {
    wire_.bytes = 0;
    const Reply reply = start(*connection, "Echo", sent).get();
    ASSERT_TRUE(reply.ok()) << reply.why;
    EXPECT_TRUE(body_of(reply.message) == body_of(sent));
    EXPECT_EQ(wire_.bytes, by_the_wire);
  };
  goes(no_place, kMega);  // the answer
  goes(few, 2000);
  goes(many, 10 * kMega);
}

TEST_F(SharedMemory, CallsOfAllSizesAtOnceKeepTheirBytesApart) {
  const auto connection = connect({.least = 1});
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      engine::Random random(engine::stream_key(thread, "sizes"));
      for (std::uint64_t i = 0; i < 60; ++i) {
        std::vector<std::pair<Message, std::future<Reply>>> calls;
        for (std::uint64_t j = 0; j < 3; ++j) {
          const auto bytes = std::size_t(std::exp(random.uniform(0, 13)));
          Message sent = message(bytes, thread * 1000 + i * 3 + j, 1 + j);
          calls.emplace_back(sent, start(*connection, "Echo", sent));
        }
        for (auto& [sent, reply] : calls)
          EXPECT_TRUE(body_of(reply.get().message) == body_of(sent));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wire_.bytes, 0u);
}

// The service reads a request, and writes its answer, after its caller gave up. Later calls neither
// change that request nor are changed by that answer.
TEST_F(SharedMemory, MemoryOfACallThatWasGivenUpIsNobodyElses) {
  const auto connection = connect();
  const Message slow = message(kMega, 1);
  auto first = start(*connection, "Keep", slow, 100ms);
  EXPECT_TRUE(keeper_.body() == body_of(slow));
  EXPECT_EQ(first.get().code, Code::kTimeout);
  std::vector<std::pair<Message, Reply>> held;
  for (std::uint64_t i = 2; i < 6; ++i) {
    const Message sent = message(kMega, i);
    held.emplace_back(sent, start(*connection, "Echo", sent).get());
  }
  EXPECT_TRUE(keeper_.body() == body_of(slow));
  keeper_.answer();
  for (const auto& [sent, reply] : held) EXPECT_TRUE(body_of(reply.message) == body_of(sent));
}

TEST_F(SharedMemory, AnAnswerOutlivesTheConnection) {
  const Message sent = message(kMega, 1);
  Reply reply;
  {
    const auto connection = connect();
    reply = start(*connection, "Echo", sent).get();
  }
  EXPECT_TRUE(body_of(reply.message) == body_of(sent));
}

TEST_F(SharedMemory, ErrorsOfTheServiceArriveAsTheyWere) {
  const auto connection = connect({.least = 1});
  const std::string why(40000, 'x');
  Message message;
  message.head = {'\x08', char(Code::kAborted)};
  message.body.push_back({reinterpret_cast<const std::byte*>(why.data()), why.size(), nullptr});
  const Reply reply = start(*connection, "Fail", message).get();
  EXPECT_EQ(reply.code, Code::kAborted);
  EXPECT_EQ(reply.why, why);
}

TEST_F(SharedMemory, AServerThatCannotMapItIsSpokenToByTheConnection) {
  Retry connection(connect());
  wire_.refuses = true;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Message sent = message(kMega, i);
    const Reply reply = start(connection, "Echo", sent).get();
    ASSERT_TRUE(reply.ok()) << reply.why;
    EXPECT_TRUE(body_of(reply.message) == body_of(sent));
  }
  EXPECT_EQ(connection.retries(), 1u);
  EXPECT_EQ(wire_.bytes, 6 * kMega);
  EXPECT_THAT(lines_, testing::ElementsAre(testing::AllOf(
                          testing::HasSubstr("this process"), testing::HasSubstr("sockets"),
                          testing::HasSubstr("no such memory here"))));
}

TEST_F(SharedMemory, WhatIsNotUsedIsLetGoAndMappedAgain) {
  SharedService brief(echo_, 100ms);
  Wire wire(brief);
  const SharedConnection connection(std::make_unique<InProcess>(wire), Log());
  auto& calls = const_cast<SharedConnection&>(connection);
  for (int i = 0; i < 2; ++i) {
    const Message sent = message(kMega, 1);
    EXPECT_TRUE(body_of(start(calls, "Echo", sent).get().message) == body_of(sent));
    const auto until = Clock::now() + kLong;
    while (brief.mapped() > 0 && Clock::now() < until) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(brief.mapped(), 0u);
  }
}

TEST_F(SharedMemory, BlocksAreUsedAgainAndNoMoreThanAllowed) {
  SharedBlocks blocks(kMega);
  auto one = blocks.take(600000);
  ASSERT_TRUE(one);
  EXPECT_GE(one->memory().bytes(), 600000u);
  EXPECT_FALSE(blocks.take(600000));
  const auto address = one->memory().address();
  one.reset();
  one = blocks.take(590000);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->memory().address(), address);
  one->spoil();
  one.reset();
  one = blocks.take(590000);
  ASSERT_TRUE(one);
  EXPECT_NE(one->memory().address().key, address.key);
  one.reset();
  EXPECT_TRUE(blocks.take(kMega)) << "the smaller one that is free makes room";
}

// Calls that no SharedConnection would make.
class HostileSharedMemory : public SharedMemory {
 protected:
  HostileSharedMemory() {
    good_.set_method("Echo");
    good_.set_memory(to_text(memory_.address()));
    good_.set_body_bytes(50000);
    good_.set_answer_bytes(40000);
  }
  Reply call(const std::string& head, std::size_t body = 0) {
    Message request = message_of(head, body);
    return start(connection_, SharedService::kMethod, request).get();
  }
  std::string refusal(const lockstep::SharedRequest& request) {
    const Reply reply = call(request.SerializeAsString());
    if (!reply.ok()) return reply.why;
    lockstep::SharedReply head;
    EXPECT_TRUE(head.ParseFromString(reply.message.head));
    return head.refused();
  }
  std::string refusal(std::uint64_t body, std::uint64_t place) {
    lockstep::SharedRequest request = good_;
    request.set_body_bytes(body);
    request.set_answer_bytes(place);
    return refusal(request);
  }
  std::string refusal(int file, std::size_t bytes, std::uint64_t key) {
    lockstep::SharedRequest request = good_;
    request.set_memory(to_text(collectives::MappingAddress{int(getpid()), file, bytes, key}));
    return refusal(request);
  }

  MappedMemory memory_{"test", 100000};
  lockstep::SharedRequest good_;
  InProcess connection_{service_};
};

TEST_F(HostileSharedMemory, BodiesLieWithinTheMemory) {
  EXPECT_EQ(refusal(good_), "");
  EXPECT_EQ(refusal(50000, 100000 - SharedService::answer_at(50000)), "");
  EXPECT_EQ(echo_.calls(), 2u);
  constexpr auto kHuge = ~std::uint64_t(0);
  for (const auto& [body, place] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {50000, 100001 - SharedService::answer_at(50000)},
           {100001, 0},
           {99999, 0},  // its answer would begin past the end
           {0, 100001},
           {kHuge, 0},
           {kHuge - 10, 20},
           {64, kHuge},
           {kHuge, kHuge}}) {
    EXPECT_THAT(refusal(body, place), testing::HasSubstr("in shared memory of 100000"))
        << body << " " << place;
  }
  EXPECT_EQ(echo_.calls(), 2u);
}

TEST_F(HostileSharedMemory, IsTheMemoryThatWasToldOf) {
  const auto address = memory_.address();
  EXPECT_THAT(refusal(address.file, address.bytes, address.key + 1), testing::HasSubstr("key"));
  EXPECT_THAT(refusal(address.file, address.bytes + 8192, address.key),
              testing::HasSubstr("bytes"));
  EXPECT_THAT(refusal(9999, address.bytes, address.key), testing::HasSubstr("cannot open"));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_THAT(refusal(ends[0], address.bytes, address.key), testing::HasSubstr("no file"));
  close(ends[0]), close(ends[1]);
  // This file has the right size and key, but its owner could truncate it.
  const int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(loose, 102400 + 4096), 0);
  ASSERT_EQ(pwrite(loose, &address.key, 8, 102400), 8);
  EXPECT_THAT(refusal(loose, address.bytes, address.key), testing::HasSubstr("cut short"));
  ASSERT_EQ(fcntl(loose, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(refusal(loose, address.bytes, address.key), "");  // sealed, it is accepted
  close(loose);
  lockstep::SharedRequest request = good_;
  for (const char* text : {"", "1:2:3", "0:1:2:3", "1:2:3:4:5", "-1:2:3:4", "/etc/passwd"}) {
    request.set_memory(text);
    EXPECT_THAT(refusal(request), testing::HasSubstr("is no address of shared memory")) << text;
  }
  EXPECT_EQ(echo_.calls(), 1u);
}

TEST_F(HostileSharedMemory, EveryDamagedCallHasItsAnswerAndTheServiceLives) {
  EXPECT_EQ(call("\xff\xff").code, Code::kInvalid);
  EXPECT_THAT(call(good_.SerializeAsString(), 10).why, testing::HasSubstr("cannot be read"));
  const std::string whole = good_.SerializeAsString();
  std::size_t refused = 0;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    const std::string head = damaged(whole, number);
    if (head.find("Silent") != std::string::npos) continue;
    const Reply reply = call(head);
    lockstep::SharedReply answer;
    refused +=
        !reply.ok() || (answer.ParseFromString(reply.message.head) && !answer.refused().empty());
  }
  EXPECT_GT(refused, kInputs / 10);
  EXPECT_EQ(refusal(good_), "");
}

}  // namespace shared_memory_test
}  // namespace lockstep::test
