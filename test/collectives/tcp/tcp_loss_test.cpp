// SPDX-License-Identifier: MIT
// A peer dies, leaves, or does not read. The peers are processes on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "engine/base/error.h"
#include "test/collectives/tcp/tcp_peer.h"
#include "test/collectives/tcp/tcp_ranks.h"

namespace lockstep::collectives {
namespace tcp_loss_test {

using namespace std::chrono_literals;
using engine::Code;
using engine::Error;
using testing::AllOf;
using testing::HasSubstr;

void sleep_for_ever(Transport&) {
  for (;;) pause();
}

Error error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(Code::kInvalid, "");
}

TEST(TcpLoss, AKilledPeerIsNamedWhileWeReceive) {
  Peer peer(sleep_for_ever);
  std::byte data{};
  const int request = peer.transport().post_receive(1, 0, &data, 1);
  EXPECT_FALSE(peer.transport().test(request));
  peer.signal(SIGKILL);
  const Error error = error_of([&] { wait_for(peer.transport(), request); });
  EXPECT_EQ(error.code(), Code::kPeerLost);
  EXPECT_THAT(error.what(),
              AllOf(HasSubstr("rank 1 on host "), HasSubstr("is gone (connection closed)")));
  // From then on every call throws.
  EXPECT_EQ(error_of([&] { peer.transport().test(request); }).code(), Code::kPeerLost);
  EXPECT_EQ(error_of([&] { peer.transport().progress(); }).code(), Code::kPeerLost);
  EXPECT_EQ(error_of([&] { peer.transport().post_send(1, 0, &data, 1); }).code(), Code::kPeerLost);
  EXPECT_EQ(error_of([&] { peer.transport().post_receive(1, 0, &data, 1); }).code(),
            Code::kPeerLost);
}

TEST(TcpLoss, AKilledPeerIsNamedWhileWeSend) {
  Peer peer(sleep_for_ever);
  const std::vector<std::byte> data(kMuch);
  const int request = peer.transport().post_send(1, 0, data.data(), data.size());
  peer.transport().progress();
  EXPECT_FALSE(peer.transport().test(request));
  peer.signal(SIGKILL);
  EXPECT_EQ(error_of([&] { wait_for(peer.transport(), request); }).code(), Code::kPeerLost);
}

TEST(TcpLoss, AKilledPeerIsNoticedWithNothingToExchangeWithIt) {
  Peer peer(sleep_for_ever);
  peer.end(SIGKILL);
  const Error error = error_of([&] { wait_until(peer.transport(), [] { return false; }); });
  EXPECT_EQ(error.code(), Code::kPeerLost);
}

TEST(TcpLoss, AKilledPeerIsNoticedBehindAMessageThatNobodyTakes) {
  std::vector<std::byte> data(kMuch);
  Peer peer([&](Transport& transport) {
    std::vector<std::byte> more(std::size_t(70) << 20);  // more than a connection keeps
    wait_for(transport, transport.post_send(0, 5, more.data(), more.size()));
  });
  std::byte one{};
  const int request = peer.transport().post_receive(1, 6, &one, 1);
  wait_until_still(peer.transport());
  const int send = peer.transport().post_send(1, 7, data.data(), data.size());
  peer.signal(SIGKILL);
  EXPECT_EQ(error_of([&] {
              wait_until(peer.transport(), [&] {
                return peer.transport().test(request) && peer.transport().test(send);
              });
            }).code(),
            Code::kPeerLost);
}

TEST(TcpLoss, WhatWasSentBeforeAnOrderlyEndArrives) {
  constexpr std::size_t kBytes = 3'000'000;
  Peer peer([](Transport& transport) {
    const std::vector<std::byte> data(kBytes, std::byte{5});
    wait_for(transport, transport.post_send(0, 1, data.data(), data.size()));
  });
  std::vector<std::byte> got(kBytes);
  Transport& transport = peer.transport();
  wait_for(transport, transport.post_receive(1, 1, got.data(), got.size()));
  EXPECT_EQ(got, std::vector<std::byte>(kBytes, std::byte{5}));
}

// An orderly end is no loss until something is needed from the rank that left.
TEST(TcpLoss, APeerThatLeavesOrderlyIsMissedOnlyWhenItIsNeeded) {
  auto ranks = connect_all(3);
  ranks[2].reset();
  std::byte sent{7}, got{};
  ranks[0]->post_send(1, 1, &sent, 1);
  wait_until_still(*ranks[1]);
  wait_for(*ranks[1], ranks[1]->post_receive(0, 1, &got, 1));
  EXPECT_EQ(got, sent);
  const Error error = error_of([&] { wait_for(*ranks[1], ranks[1]->post_receive(2, 1, &got, 1)); });
  EXPECT_EQ(error.code(), Code::kPeerLost);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("rank 2"), HasSubstr("has left")));
}

TEST(TcpLoss, APeerThatLeavesWhileSomethingIsAwaitedIsLost) {
  auto ranks = connect_all(2);
  std::byte got{};
  const int request = ranks[0]->post_receive(1, 1, &got, 1);
  ranks[1].reset();
  EXPECT_EQ(error_of([&] { wait_for(*ranks[0], request); }).code(), Code::kPeerLost);
}

TEST(TcpLoss, AnEndWithSomethingUnfinishedIsNoOrderlyOne) {
  auto ranks = connect_all(2);
  std::byte got{};
  ranks[1]->post_receive(0, 1, &got, 1);
  ranks[1].reset();
  const Error error = error_of([&] { wait_until(*ranks[0], [] { return false; }); });
  EXPECT_EQ(error.code(), Code::kPeerLost);
}

}  // namespace tcp_loss_test
}  // namespace lockstep::collectives
