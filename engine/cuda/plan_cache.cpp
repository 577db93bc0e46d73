// SPDX-License-Identifier: MIT
#include "engine/cuda/plan_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>
#include <random>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/hash.h"
#include "engine/base/plain_file.h"

namespace lockstep::engine::cuda {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kChoicesFormat = "lockstep's choices of kernels, 1";
constexpr std::string_view kBetween = " = ";

// Locks a file that is read, extended and written. It waits for other processes for ten seconds at
// most. Without the lock, for example on file systems without locks, the work continues; then one
// of two simultaneous writers may lose its choices.
class FileLock {
 public:
  explicit FileLock(const fs::path& path)
      : file_(PlainFile(path.string(), O_RDWR | O_CREAT).release()) {
    constexpr int kTries = 2000;
    constexpr std::chrono::milliseconds kPause(5);
    if (file_ < 0) return;
    for (int i = 0; i < kTries && flock(file_, LOCK_EX | LOCK_NB) != 0; ++i) {
      if (errno != EWOULDBLOCK && errno != EINTR) return;
      std::this_thread::sleep_for(kPause);
    }
  }
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

std::string lines_of(const std::map<std::string, std::string>& choices) {
  std::string text;
  for (const auto& [problem, choice] : choices) {
    text += fmt::format("{}{}{}\n", problem, kBetween, choice);
  }
  return text;
}

std::string head_of(const std::string& machine) {
  return fmt::format("{}\n{}\n", kChoicesFormat, machine);
}

// Returns the last line of a file.
std::string seal_of(std::string_view body) {
  return fmt::format("checksum {:016x}\n", hash(body));
}

// Parses lines in the format of lines_of. Throws Error(kCorrupt).
std::map<std::string, std::string> parse_lines(std::string_view body) {
  std::map<std::string, std::string> choices;
  while (!body.empty()) {
    const std::string_view line = body.substr(0, body.find('\n'));
    body.remove_prefix(std::min(line.size() + 1, body.size()));
    const std::size_t between = line.find(kBetween);
    if (between == line.npos) fail(Code::kCorrupt, "a line has no \"{}\"", kBetween);
    const std::string choice(line.substr(between + kBetween.size()));
    if (choice.empty()) fail(Code::kCorrupt, "a problem has no choice");
    choices.emplace(line.substr(0, between), choice);
  }
  return choices;
}

// Parses a file. Throws Error(kCorrupt).
std::map<std::string, std::string> parse(std::string_view text, const std::string& machine) {
  const std::size_t seal = seal_of("").size();
  if (text.size() < seal) fail(Code::kCorrupt, "it has no checksum");
  std::string_view body = text.substr(0, text.size() - seal);
  if (seal_of(body) != text.substr(body.size())) fail(Code::kCorrupt, "its checksum is another");
  const std::string head = head_of(machine);
  if (!body.starts_with(head)) fail(Code::kCorrupt, "it was written for another machine");
  return parse_lines(body.substr(head.size()));
}

// Returns the text of a file, or none if there is no file. Throws Error(kIo), Error(kInvalid).
std::optional<std::string> file_text(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  return read_text(path.string(), "it", PlanCache::kMostBytes);
}

}  // namespace

PlanCache::PlanCache(fs::path folder, std::string machine, Log log)
    : folder_(std::move(folder)), machine_(std::move(machine)), log_(std::move(log)) {
  invariant(machine_.find('\n') == machine_.npos, "a machine is described in one line");
}

fs::path PlanCache::file() const {
  return folder_ / fmt::format("kernels-{:016x}.txt", hash(head_of(machine_)));
}

std::string PlanCache::text() const {
  const std::lock_guard lock(mutex_);
  return lines_of(in_use_);
}

void PlanCache::adopt(const std::string& text) {
  const Choices choices = parse_lines(text);
  const std::lock_guard lock(mutex_);
  in_use_.insert(choices.begin(), choices.end());
}

// Finding takes long, so another process may have stored its choice meanwhile; the file is
// therefore read again. Only one thread of a process finds at a time, since two on one GPU would
// disturb each other's measurements.
std::string PlanCache::choose(const std::string& problem, const Build& build, const Find& find,
                              const bool& lasting) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> refused;
  std::string mine;
  for (;;) {
    const std::string kept = keep(problem, mine, refused);
    if (kept.empty()) {
      mine = find();
      invariant(!mine.empty() && (problem + mine).find('\n') == mine.npos &&
                    problem.find(kBetween) == problem.npos,
                "problems and choices are lines of text");
      if (!lasting) {
        in_use_.insert_or_assign(problem, mine);
        return mine;
      }
    } else if (kept == mine || build(kept)) {
      in_use_.insert_or_assign(problem, kept);
      return kept;
    } else {
      log_.warning(
          "the kernel that was kept for the {} ({}) cannot be used any more; the "
          "fastest is measured anew, and the last bits of results may differ",
          problem, kept);
      refused.insert(kept);
    }
  }
}

std::string PlanCache::keep(const std::string& problem, const std::string& mine,
                            const std::set<std::string>& refused) {
  const auto holds = [&](const Choices& choices) {
    const auto found = choices.find(problem);
    return found == choices.end() || refused.contains(found->second) ? "" : found->second;
  };
  if (const std::string used = holds(in_use_); !used.empty() || folder_.empty()) {
    return used.empty() ? mine : used;
  }
  if (mine.empty()) return holds(read());
  std::error_code error;  // without a folder, writing reports it
  fs::create_directories(folder_, error);
  const FileLock lock(file().string() + ".lock");
  Choices stored = read();
  if (std::string first = holds(stored); !first.empty()) return first;
  stored.insert_or_assign(problem, mine);
  write(stored);
  return mine;
}

PlanCache::Choices PlanCache::read() {
  try {
    const std::optional<std::string> text = file_text(file());
    return text ? parse(*text, machine_) : Choices();
  } catch (const Error& error) {
    warn_once(fmt::format("{} is not used: {}; kernels are measured anew", file().string(),
                          error.what()));
    return {};
  }
}

void PlanCache::write(const Choices& stored) {
  const std::string body = head_of(machine_) + lines_of(stored);
  const std::string text = body + seal_of(body);
  const fs::path path = file();
  if (text.size() > kMostBytes) {
    warn_once(fmt::format("{} is full, so new choices of kernels are not kept: remove it",
                          path.string()));
    return;
  }
  std::random_device random;
  const fs::path partial =
      fmt::format("{}.{:08x}{:08x}.partial", path.string(), random(), random());
  std::error_code error;
  std::ofstream out(partial, std::ios::binary);
  out << text;
  out.close();
  if (out) fs::rename(partial, path, error);
  if (out && !error) return;
  fs::remove(partial, error);
  warn_once(
      fmt::format("{} cannot be written, so the next run may choose other kernels", path.string()));
}

void PlanCache::warn_once(const std::string& what) {
  if (!std::exchange(warned_, true)) log_.warning("{}", what);
}

}  // namespace lockstep::engine::cuda
