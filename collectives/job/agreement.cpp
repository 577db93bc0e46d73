// SPDX-License-Identifier: MIT
#include "collectives/job/agreement.h"

#include <fmt/core.h>

#include <algorithm>
#include <sstream>

#include "engine/base/error.h"
#include "engine/base/error_bytes.h"

namespace lockstep::collectives {

using engine::Code;
using engine::Error;

namespace {

constexpr int kMostDifferences = 3;  // differing lines in an error

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

void require_same(Job& job, const std::string& mine, const std::string& what, bool heading) {
  const std::vector<std::string> all = job.bootstrap().all_gather(mine, what);
  for (std::size_t process = 1; process < all.size(); ++process) {
    if (all[process] == all[0]) continue;
    std::vector<std::string> ours = lines_of(all[0]), theirs = lines_of(all[process]);
    ours.resize(std::max(ours.size(), theirs.size()), "(nothing)");
    theirs.resize(ours.size(), "(nothing)");
    std::string differences;
    int left = heading && ours[0] != theirs[0] ? 1 : kMostDifferences;
    for (std::size_t i = 0; i < ours.size() && left > 0; ++i) {
      if (ours[i] == theirs[i]) continue;
      differences += fmt::format("; '{}' and not '{}'", theirs[i], ours[i]);
      --left;
    }
    leave_together(job, what);
    engine::fail(Code::kInvalid,
                 "process {} was started differently from process 0 ({}){}: give all the same",
                 process, what, differences);
  }
}

// Exchanges once more: a process that still waits here must not take the first that left for dead.
void leave_together(Job& job, const std::string& what) {
  job.expect_deaths(true);
  job.bootstrap().all_gather("", what);
}

void run_collectively(Job& job, const std::function<void()>& body, const std::string& what) {
  std::string mine;  // an error, as bytes
  try {
    body();
  } catch (const Error& error) {
    mine = engine::to_bytes(error);
  } catch (const std::exception& error) {  // others must not wait for this one
    mine = engine::to_bytes({Code::kIo, fmt::format("{}: {}", what, error.what())});
  }
  const bool expected = job.expect_deaths(false);
  for (const std::string& text : job.bootstrap().all_gather(mine, what)) {
    if (text.empty()) continue;
    leave_together(job, what);
    const auto error = engine::read_error(text);
    if (!error) throw Error(Code::kInvalid, "the processes make different calls");
    throw Error(*error);
  }
  job.expect_deaths(expected);
}

// Sends pieces that a bootstrap accepts, in as many rounds as the longest text needs.
std::vector<std::string> collect(Job& job, const std::string& mine, const std::string& what) {
  constexpr std::size_t kPiece = std::size_t(1) << 18;
  Bootstrap& bootstrap = job.bootstrap();
  std::size_t longest = 0;
  for (const std::string& size : bootstrap.all_gather(std::to_string(mine.size()), what)) {
    longest = std::max(longest, std::size_t(std::stoull(size)));
  }
  const bool chief = bootstrap.process() == 0;
  std::vector<std::string> all(chief ? std::size_t(bootstrap.processes()) : 0);
  for (std::size_t at = 0; at < longest; at += kPiece) {
    const std::vector<std::string> pieces =
        bootstrap.all_gather(at < mine.size() ? mine.substr(at, kPiece) : "", what);
    for (std::size_t process = 0; process < all.size(); ++process) all[process] += pieces[process];
  }
  return all;
}

}  // namespace lockstep::collectives
