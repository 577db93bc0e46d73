// SPDX-License-Identifier: MIT
#include "tools/bench/verdict.h"

#include <fmt/core.h>

namespace lockstep::tools::bench {
namespace {

std::string line(std::size_t wrong, const std::string& whose) {
  return wrong == 1 ? fmt::format("1 element of {} is wrong", whose)
                    : fmt::format("{} elements of {} are wrong", wrong, whose);
}

}  // namespace

std::vector<std::string> Verdict::lines(const std::string& rival) const {
  std::vector<std::string> all;
  if (const std::size_t wrong = wrong_.value_or(0); wrong > 0)
    all.push_back(line(wrong, "results"));
  if (const std::size_t wrong = rival_wrong_.value_or(0); wrong > 0)
    all.push_back(line(wrong, fmt::format("{}'s results", rival)));
  return all;
}

}  // namespace lockstep::tools::bench
