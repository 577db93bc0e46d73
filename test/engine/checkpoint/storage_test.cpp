// SPDX-License-Identifier: MIT
#include "engine/checkpoint/storage.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace storage_test {

using engine::Error;
using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class StorageTest : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  void put(const std::string& path, const std::string& text) {
    const auto file = storage_->create(path);
    file->write(std::as_bytes(std::span(text)));
    file->sync();
  }
  std::string get(const std::string& path, std::uint64_t offset, std::size_t count) {
    std::string text(count, '?');
    storage_->read(path, offset, std::as_writable_bytes(std::span(text)));
    return text;
  }
  std::string error_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(engine::name(error.code())) + ": " + error.what();
    }
    return "none";
  }
  TemporaryFolder folder_;
  std::unique_ptr<engine::Storage> storage_ = engine::posix_storage();
};

TEST_F(StorageTest, FilesAreReadAsTheyWereWritten) {
  put(at("f"), "hello, storage");
  EXPECT_EQ(storage_->size(at("f")), 14u);
  EXPECT_EQ(get(at("f"), 7, 7), "storage");
  EXPECT_EQ(get(at("f"), 14, 0), "");
  put(at("f"), "short");
  EXPECT_EQ(storage_->size(at("f")), 5u);
  EXPECT_THAT(
      error_of([&] { get(at("f"), 3, 5); }),
      AllOf(StartsWith("corrupt: cannot read "), HasSubstr("ends at byte 5, 3 bytes too early")));
}

TEST_F(StorageTest, FoldersAreMadeWithParentsListedRenamedAndRemoved) {
  EXPECT_THAT(storage_->make_folder(at("a/b/c")), ElementsAre(at("a"), at("a/b"), at("a/b/c")));
  EXPECT_THAT(storage_->make_folder(at("a/b/c/")), IsEmpty());
  EXPECT_FALSE(storage_->remove_folder(at("a/b")));  // not empty
  EXPECT_TRUE(storage_->remove_folder(at("a/b/c")));
  EXPECT_FALSE(storage_->remove_folder(at("a/b/c")));
  EXPECT_THAT(storage_->make_folder(at("a/b/c/")), ElementsAre(at("a/b/c")));
  put(at("a/b/c/f"), "x");
  put(at("a/b/e"), "x");
  EXPECT_THAT(storage_->list(at("a/b")), ElementsAre("c", "e"));
  EXPECT_THAT(storage_->list(at("none")), ElementsAre());
  storage_->rename(at("a/b"), at("a/d"));
  storage_->sync_folder(at("a"));
  EXPECT_TRUE(storage_->exists(at("a/d/c/f")));
  EXPECT_FALSE(storage_->exists(at("a/b")));
  storage_->remove_tree(at("a"));
  storage_->remove_tree(at("a"));
  EXPECT_FALSE(storage_->exists(at("a")));
}

TEST_F(StorageTest, ModesFollowTheUmask) {
  const mode_t before = ::umask(027);
  storage_->make_folder(at("m"));
  put(at("m/f"), "x");
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(at("m/f").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  ASSERT_EQ(::stat(at("m").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0750u);
}

TEST_F(StorageTest, PipesDevicesAndFoldersAreNotFiles) {
  storage_->make_folder(at("folder"));
  ASSERT_EQ(::mkfifo(at("pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", at("link"));
  for (const std::string& path : {at("pipe"), at("folder"), at("link"), std::string("/dev/zero")}) {
    EXPECT_THAT(error_of([&] { get(path, 0, 1); }), StartsWith("corrupt: cannot read " + path));
    EXPECT_THAT(error_of([&] { storage_->size(path); }), StartsWith("corrupt: ")) << path;
    EXPECT_THAT(error_of([&] { put(path, "y"); }), StartsWith("io: cannot write " + path)) << path;
  }
}

// Users move their runs to another disk with links.
TEST_F(StorageTest, LinksAreReadThroughAndFilesAreNotWrittenThroughThem) {
  storage_->make_folder(at("folder"));
  put(at("folder/f"), "x");
  std::filesystem::create_symlink(at("folder/f"), at("link"));
  std::filesystem::create_directory_symlink(at("folder"), at("folder_link"));
  EXPECT_EQ(get(at("link"), 0, 1), "x");
  EXPECT_EQ(storage_->size(at("folder_link/f")), 1u);
  put(at("folder_link/g"), "y");
  EXPECT_EQ(get(at("folder/g"), 0, 1), "y");
  storage_->make_folder(at("folder_link/run"));
  EXPECT_THAT(storage_->list(at("folder_link")), ElementsAre("f", "g", "run"));
  EXPECT_THAT(error_of([&] { put(at("link"), "z"); }), EndsWith("it is a symbolic link"));
  EXPECT_EQ(get(at("folder/f"), 0, 1), "x");
  std::filesystem::create_directory_symlink(at("nowhere"), at("dangling"));
  EXPECT_THAT(error_of([&] { storage_->make_folder(at("dangling")); }),
              AllOf(HasSubstr("a symbolic link to " + at("nowhere")), EndsWith("not there")));
}

TEST_F(StorageTest, TheRoomOnADiskShrinksByWhatIsWritten) {
  const std::uint64_t before = storage_->room(folder_.path());
  EXPECT_GT(before, 0u);
  put(at("f"), std::string(std::size_t(8) << 20, 'x'));
  EXPECT_LT(storage_->room(folder_.path()), before);  // other processes write and remove less
  EXPECT_THAT(error_of([&] { storage_->room(at("none")); }), HasSubstr(at("none")));
  EXPECT_EQ(storage_->room("/proc"), engine::Storage::kUnknownRoom) << "it tells of no blocks";
}

TEST_F(StorageTest, RemovingDoesNotFollowLinks) {
  storage_->make_folder(at("precious"));
  put(at("precious/f"), "x");
  storage_->make_folder(at("old"));
  std::filesystem::create_directory_symlink(at("precious"), at("old/link"));
  std::filesystem::create_directory_symlink(at("precious"), at("old_link"));
  storage_->remove_tree(at("old"));
  storage_->remove_tree(at("old_link"));
  EXPECT_EQ(get(at("precious/f"), 0, 1), "x");
}

TEST_F(StorageTest, ErrorsNameThePathAndTheReason) {
  put(at("file"), "x");
  EXPECT_THAT(error_of([&] { get(at("none"), 0, 1); }),
              AllOf(HasSubstr(at("none")), EndsWith("No such file or directory")));
  EXPECT_THAT(error_of([&] { storage_->make_folder(at("file")); }),
              AllOf(HasSubstr(at("file")), HasSubstr("there is a file of this name")));
  EXPECT_THAT(error_of([&] { storage_->make_folder(at("file/below")); }),
              AllOf(HasSubstr(at("file")), HasSubstr("there is a file of this name")));
  EXPECT_THAT(error_of([&] { storage_->list(at("file")); }), EndsWith("Not a directory"));
  EXPECT_THAT(error_of([&] { storage_->sync_folder(at("none")); }),
              StartsWith("io: cannot sync " + at("none")));
  EXPECT_THAT(error_of([&] { storage_->rename(at("none"), at("other")); }),
              AllOf(HasSubstr(at("none")), HasSubstr(at("other")), HasSubstr("No such file")));
  EXPECT_FALSE(storage_->exists(at("file/below")));
}

TEST_F(StorageTest, AReadOnlyFolderSaysSo) {
  storage_->make_folder(at("r"));
  ::chmod(at("r").c_str(), 0555);
  if (::access(at("r").c_str(), W_OK) == 0) {  // root may, except in /proc
    EXPECT_THAT(error_of([&] { storage_->make_folder("/proc/lockstep"); }),
                StartsWith("io: cannot make folder /proc/lockstep: "));
    EXPECT_THAT(error_of([&] { put("/proc/lockstep", "x"); }),
                StartsWith("io: cannot write /proc/lockstep: "));
    return;
  }
  EXPECT_THAT(error_of([&] { put(at("r/f"), "x"); }),
              AllOf(StartsWith("io: cannot write " + at("r/f")), EndsWith("Permission denied")));
  EXPECT_THAT(error_of([&] { storage_->make_folder(at("r/g")); }), EndsWith("Permission denied"));
}

// The limit on file sizes stands in for a full disk: the system writes a part, then refuses.
TEST_F(StorageTest, AWriteThatIsCutShortIsAnErrorWithTheReason) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error = error_of([&] { put(at("f"), std::string(4000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "io: cannot write " + at("f") + ": File too large");
  EXPECT_EQ(storage_->size(at("f")), 1000u);
}

TEST_F(StorageTest, ALockHasOneHolderWhoIsNamedAndLeavesNothing) {
  std::string holder;
  auto mine = storage_->lock(at("lock"), "me", holder);
  ASSERT_NE(mine, nullptr);
  EXPECT_TRUE(mine->works());
  EXPECT_EQ(storage_->lock(at("lock"), "another", holder), nullptr);
  EXPECT_EQ(holder, "me");
  EXPECT_NE(storage_->lock(at("other"), "another", holder), nullptr);
  mine.reset();
  EXPECT_THAT(storage_->list(folder_.path()), ElementsAre());
  EXPECT_NE(storage_->lock(at("lock"), "another", holder), nullptr);
  EXPECT_THAT(error_of([&] { storage_->lock(at("none/lock"), "me", holder); }),
              StartsWith("io: cannot lock " + at("none/lock")));
  std::filesystem::create_symlink(at("real"), at("lock"));
  EXPECT_THAT(error_of([&] { storage_->lock(at("lock"), "me", holder); }),
              EndsWith("it is a symbolic link"));
}

TEST_F(StorageTest, TheLockOfAKilledProcessIsFreeAtOnce) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  std::string holder;
  if (child == 0) {
    const auto lock = storage_->lock(at("lock"), "the child, with a long name", holder);
    if (::write(ready[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  EXPECT_EQ(storage_->lock(at("lock"), "me", holder), nullptr);
  EXPECT_EQ(holder, "the child, with a long name");
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(storage_->exists(at("lock")));
  const auto mine = storage_->lock(at("lock"), "me", holder);
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(storage_->lock(at("lock"), "another", holder), nullptr);
  EXPECT_EQ(holder, "me");
}

// Holders remove the lock file, so another process may have opened a file that no longer exists.
TEST_F(StorageTest, AtNoMomentDoTwoHaveALock) {
  std::atomic<int> holders{0}, taken{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        std::string holder;
        try {
          const auto lock = storage_->lock(at("lock"), "one of them", holder);
          if (!lock) continue;
          ++taken;
          if (++holders != 1) ++wrong;
          std::this_thread::yield();
          --holders;
        } catch (const Error&) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(taken, 0);
}

TEST_F(StorageTest, NoDescriptorIsLeftOpen) {
  const auto count = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const auto before = count();
  put(at("f"), "x");
  get(at("f"), 0, 1);
  storage_->list(folder_.path());
  storage_->sync_folder(folder_.path());
  error_of([&] { get(at("f"), 0, 2); });
  error_of([&] { get(folder_.path(), 0, 2); });
  {
    std::string holder;
    const auto lock = storage_->lock(at("lock"), "me", holder);
    storage_->lock(at("lock"), "another", holder);
  }
  EXPECT_EQ(count(), before);
}

}  // namespace storage_test
}  // namespace lockstep::test
