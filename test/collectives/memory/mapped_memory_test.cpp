// SPDX-License-Identifier: MIT
#include "collectives/memory/mapped_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

#include "engine/base/error.h"

namespace lockstep::collectives {
namespace mapped_memory_test {

using engine::Code;
using engine::Error;
using testing::HasSubstr;

// Runs `child` in another process. Returns its exit status, which is the result of `child`.
int in_child(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) {
    int code = 99;
    try {
      code = child();
    } catch (const Error&) {
      code = 98;
    }
    _exit(code);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string io_error(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kIo) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

class MappedSizes : public testing::TestWithParam<std::size_t> {};

TEST_P(MappedSizes, IsZeroedAlignedAndSharedWithAnotherProcess) {
  const std::size_t bytes = GetParam();
  MappedMemory mine("test", bytes);
  ASSERT_EQ(mine.bytes(), bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(mine.data());
  const std::size_t alignment = bytes < std::size_t(4) << 20 ? 4096 : std::size_t(2) << 20;
  EXPECT_EQ(address % alignment, 0u);
  EXPECT_TRUE(
      std::all_of(mine.data(), mine.data() + bytes, [](std::byte b) { return b == std::byte{0}; }));
  std::fill_n(mine.data(), bytes, std::byte{7});
  const std::string text = to_text(mine.address());
  const int code = in_child([&] {
    const engine::Buffer theirs = map_peer(mapping_address(text));
    if (theirs.bytes() != bytes || theirs.data() == mine.data()) return 1;
    for (std::size_t i = 0; i < bytes; ++i) {
      if (theirs.data()[i] != std::byte{7}) return 2;
    }
    std::fill_n(theirs.data(), bytes, std::byte{9});
    return 0;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(
      std::all_of(mine.data(), mine.data() + bytes, [](std::byte b) { return b == std::byte{9}; }));
}

INSTANTIATE_TEST_SUITE_P(Bytes, MappedSizes,
                         testing::Values(0, 1, 4095, 4096, 4097, (4 << 20) - 1, 4 << 20,
                                         (4 << 20) + 1, (6 << 20) + 5000));

TEST(MappedMemory, PagesAreThereBeforeAnybodyTouchesThem) {
  const MappedMemory mine("test", std::size_t(8) << 20);
  struct stat status {};
  const std::string path = fmt::format("/proc/self/fd/{}", mine.address().file);
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_GE(std::size_t(status.st_blocks) * 512, std::size_t(8) << 20);
}

TEST(MappedMemory, NobodyCanShrinkIt) {
  const MappedMemory mine("test", 8192);
  EXPECT_NE(ftruncate(mine.address().file, 4096), 0);
}

TEST(MappedMemory, AWrongKeyIsRefused) {
  const MappedMemory mine("test", 8192);
  MappingAddress other = mine.address();
  other.key ^= 1;
  EXPECT_THAT(io_error([&] { map_peer(other); }), HasSubstr("another key"));
}

TEST(MappedMemory, AnotherSizeIsRefused) {
  const MappedMemory mine("test", 8192);
  for (const std::size_t bytes :
       {std::size_t(0), std::size_t(4096), std::size_t(1) << 30, ~std::size_t(0)}) {
    MappingAddress other = mine.address();
    other.bytes = bytes;
    EXPECT_THAT(io_error([&] { map_peer(other); }), HasSubstr("not the memory"));
  }
}

TEST(MappedMemory, WhatIsNoMemoryIsRefusedWithoutBlocking) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  EXPECT_THAT(
      io_error([&] { map_peer({.pid = getpid(), .file = ends[0], .bytes = 4096, .key = 1}); }),
      HasSubstr("not the memory"));
  close(ends[0]);
  close(ends[1]);
}

TEST(MappedMemory, AProcessThatIsGoneIsRefused) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  EXPECT_THAT(io_error([&] { map_peer({.pid = pid, .file = 3, .bytes = 4096, .key = 1}); }),
              HasSubstr(fmt::format("process {}", pid)));
}

TEST(MappedMemory, AfterClosingTheFileMappingsStayAndNobodyComesIn) {
  MappedMemory mine("test", 8192);
  const engine::Buffer theirs = map_peer(mine.address());
  const MappingAddress address = mine.address();
  mine.close_file();
  mine.close_file();
  mine.data()[5] = std::byte{42};
  EXPECT_EQ(theirs.data()[5], std::byte{42});
  io_error([&] { map_peer(address); });
}

TEST(MappedMemory, MovesAndClosesItsFileOnce) {
  MappingAddress address;
  {
    MappedMemory first("test", 4096);
    address = first.address();
    MappedMemory second = std::move(first);
    MappedMemory third;
    third = std::move(second);
    third.data()[0] = std::byte{1};
    EXPECT_EQ(fcntl(address.file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  }
  EXPECT_EQ(fcntl(address.file, F_GETFD), -1);
}

TEST(MappedMemory, MoreThanThereIsIsAnErrorThatSaysHowMuch) {
  for (const std::size_t bytes : {std::size_t(1) << 50, std::size_t(1) << 60, ~std::size_t(0)}) {
    EXPECT_THAT(io_error([&] { MappedMemory("weights", bytes); }),
                testing::AllOf(HasSubstr(fmt::format("{} bytes", bytes)), HasSubstr("weights")));
  }
}

TEST(MappingAddress, TextReadsBack) {
  const MappingAddress address{.pid = 12, .file = 0, .bytes = 1ul << 40, .key = ~std::uint64_t(0)};
  EXPECT_EQ(mapping_address(to_text(address)), address);
}

TEST(MappingAddress, TextOfAnotherFormIsRefused) {
  for (const char* text :
       {"", "1", "1:2:3", "1:2:3:4:5", "1:2:3:", "-1:2:3:4", "0:2:3:4", "1:-2:3:4", "1:2:3:4 ",
        "1:2:3:18446744073709551616", "99999999999:1:1:1", "a:b:c:d", "1:2:-3:4"}) {
    try {
      mapping_address(text);
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalid);
    }
  }
}

}  // namespace mapped_memory_test
}  // namespace lockstep::collectives
