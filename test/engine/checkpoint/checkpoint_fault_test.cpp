// SPDX-License-Identifier: MIT
// Tests the law of checkpoints: a checkpoint is whole or absent, and once one exists, one always
// exists. An error, the end of the process, or a loss of power interrupts the save at every single
// call.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <ostream>
#include <random>
#include <string>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "test/engine/checkpoint/fault_storage.h"
#include "test/engine/checkpoint/memory_storage.h"
#include "test/engine/checkpoint/scenario.h"

namespace lockstep::test {
namespace checkpoint_fault_test {

using engine::Checkpoints;
using engine::Code;
using engine::Error;
using engine::Storage;
using When = FaultStorage::When;

// Describes the interrupted save and the checkpoint before it. The existing checkpoint has the note
// "old"; the one being saved has the note "new".
struct Scenario {
  const char* name;
  std::int64_t old_step, new_step;
  int keep;
};
void PrintTo(const Scenario& scenario, std::ostream* out) {
  *out << scenario.name;
}
constexpr Scenario kScenarios[] = {
    {"the next step, keeping one", 1, 2, 1},
    {"the next step, keeping two", 1, 2, 2},
    {"the same step again, keeping one", 2, 2, 1},
};

Arrays old_arrays() {
  return some_arrays(1);
}
Arrays new_arrays() {
  return some_arrays(2);
}

class CheckpointFaultTest : public testing::TestWithParam<Scenario> {
 protected:
  Checkpoints on(Storage& storage, const std::string& folder) {
    return Checkpoints(storage, folder, GetParam().keep, lines_.log());
  }
  void save_old(Storage& storage, const std::string& folder) {
    std::mt19937_64 random(3);
    Checkpoints checkpoints = on(storage, folder);
    save(checkpoints, GetParam().old_step, old_arrays(), 2, random, "old");
  }
  void save_new(Storage& storage, const std::string& folder) {
    std::mt19937_64 random(4);
    Checkpoints checkpoints = on(storage, folder);
    save(checkpoints, GetParam().new_step, new_arrays(), 3, random, "new");
  }
  // Returns the note of the newest whole checkpoint, which tells whether it has the old or the new
  // arrays. All others with a checkpoint's name must be whole too, neither half-written nor
  // half-removed.
  std::string newest_note(Storage& storage, const std::string& folder) {
    Checkpoints checkpoints = on(storage, folder);
    const auto step = checkpoints.newest_whole();
    if (!step) return "nothing";
    for (const std::int64_t other : checkpoints.steps()) EXPECT_NO_THROW(checkpoints.verify(other));
    const std::string note = checkpoints.read_state(*step).notes["note"];
    const bool is_new = note == "new";
    EXPECT_EQ(*step, is_new ? GetParam().new_step : GetParam().old_step);
    const Arrays wanted = is_new ? new_arrays() : old_arrays();
    EXPECT_TRUE(same(restored(checkpoints, *step, wanted), wanted));
    return note;
  }
  // Returns the same note. Then saves the new checkpoint again, as a resumed run would; nothing
  // else may be left.
  std::string newest(Storage& storage, const std::string& folder) {
    std::string note = newest_note(storage, folder);
    Checkpoints checkpoints = on(storage, folder);
    save_new(storage, folder);
    EXPECT_EQ(checkpoints.newest_whole(), GetParam().new_step);
    const bool both = GetParam().keep == 2 && GetParam().old_step != GetParam().new_step;
    EXPECT_EQ(storage.list(folder).size(), both ? 2 : 1);
    return note;
  }
  LogLines lines_;
};

INSTANTIATE_TEST_SUITE_P(All, CheckpointFaultTest, testing::ValuesIn(kScenarios),
                         [](const auto& test) { return "Scenario" + std::to_string(test.index); });

TEST_P(CheckpointFaultTest, AnErrorInAnyCallIsReportedAndLeavesAWholeCheckpoint) {
  MemoryStorage before;
  save_old(before, "runs");
  int errors = 0, warnings = 0;
  for (const bool stays : {false, true}) {
    for (const When when : {When::kBefore, When::kHalf, When::kAfter}) {
      for (int call = 0;; ++call) {
        SCOPED_TRACE(testing::Message() << GetParam().name << ", call " << call << ", when "
                                        << int(when) << ", stays " << stays);
        const auto storage = before.copy();
        FaultStorage faulty(*storage, call, when, FaultStorage::no_space, stays);
        lines_.clear();
        bool failed = false;
        try {
          save_new(faulty, "runs");
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::kIo) << error.what();
          failed = true;
        }
        if (faulty.calls() <= call) break;
        // An error that is not thrown is in the log: only the removal of an obsolete file failed.
        const bool said = lines_.contain("No space left");
        EXPECT_NE(failed, said) << lines_.all();
        (failed ? errors : warnings)++;
        const std::string note = newest(*storage, "runs");
        EXPECT_TRUE(note == "new" || (note == "old" && failed)) << note;
      }
    }
  }
  EXPECT_GT(errors, 100);
  EXPECT_GT(warnings, 10);
}

TEST_P(CheckpointFaultTest, ALossOfPowerAtAnyCallLeavesAWholeCheckpoint) {
  MemoryStorage before;
  save_old(before, "runs");
  std::mt19937_64 random(11);
  int old_ones = 0, new_ones = 0;
  for (int call = 0;; ++call) {
    bool done = false;
    for (int trial = 0; trial < 6; ++trial) {
      SCOPED_TRACE(testing::Message() << GetParam().name << ", call " << call);
      const auto storage = before.copy();
      FaultStorage faulty(*storage, call, trial % 2 ? When::kHalf : When::kAfter,
                          FaultStorage::no_space, true);
      bool failed = false;
      try {
        save_new(faulty, "runs");
      } catch (const Error&) {
        failed = true;
      }
      done = faulty.calls() <= call;
      storage->lose_power(random);
      const std::string note = newest(*storage, "runs");
      ASSERT_TRUE(note == "new" || (note == "old" && failed)) << note << "\n" << lines_.all();
      (note == "new" ? new_ones : old_ones)++;
    }
    if (done) break;
  }
  EXPECT_GT(old_ones, 50);
  EXPECT_GT(new_ones, 50);
}

TEST_P(CheckpointFaultTest, AProcessKilledAtAnyCallLeavesAWholeCheckpoint) {
  const TemporaryFolder folder;
  const auto storage = engine::posix_storage();
  const std::string before = folder.path() + "/before", runs = folder.path() + "/runs";
  save_old(*storage, before);
  int killed = 0;
  for (int call = 0;; ++call) {
    SCOPED_TRACE(testing::Message() << GetParam().name << ", call " << call);
    std::filesystem::remove_all(runs);
    std::filesystem::copy(before, runs, std::filesystem::copy_options::recursive);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto die = [&] {
        if (call % 2) ::raise(SIGKILL);
        ::_exit(7);
      };
      FaultStorage faulty(*storage, call, call % 3 ? When::kHalf : When::kAfter, die);
      save_new(faulty, runs);
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const std::string note = newest(*storage, runs);
    ASSERT_TRUE(note == "old" || note == "new") << note;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
      EXPECT_EQ(note, "new");
      break;
    }
    ++killed;
  }
  EXPECT_GT(killed, 40);
}

// Runs `body` in a child process and calls `look` before and after each of its system calls. The
// files are then as if the process had been killed there. Returns the number of stops; 0 if tracing
// processes is not permitted.
int look_at_every_system_call(const std::function<void()>& body,
                              const std::function<void()>& look) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(9);
    ::raise(SIGSTOP);
    body();
    ::_exit(0);
  }
  int status = 0, stops = 0;
  while (child > 0 && ::waitpid(child, &status, 0) == child && WIFSTOPPED(status)) {
    if (stops++ > 0) look();
    if (::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr) != 0) break;
  }
  return stops;
}

TEST_P(CheckpointFaultTest, AWholeCheckpointIsThereAtEverySystemCall) {
  const TemporaryFolder folder;
  const auto storage = engine::posix_storage();
  const std::string runs = folder.path() + "/runs";
  save_old(*storage, runs);
  int old_ones = 0, new_ones = 0;
  const int stops = look_at_every_system_call([&] { save_new(*storage, runs); },
                                              [&] {
                                                const std::string note =
                                                    newest_note(*storage, runs);
                                                old_ones += note == "old";
                                                new_ones += note == "new";
                                              });
  if (stops == 0) GTEST_SKIP() << "processes may not be traced here";
  EXPECT_EQ(old_ones + new_ones, stops - 1) << lines_.all();
  EXPECT_GT(old_ones, 100);
  EXPECT_GT(new_ones, 10);
}

}  // namespace checkpoint_fault_test
}  // namespace lockstep::test
