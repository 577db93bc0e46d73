// SPDX-License-Identifier: MIT
// A line of a benchmark's results as names and values: the same in JSON and in CSV. Numbers have
// all their digits; what was not measured is null, and an empty cell. Pure functions.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/work.h"

namespace lockstep::tools::bench {

using Fields = std::vector<std::pair<std::string, nlohmann::json>>;

// What every line is of: ranks, hosts, collective, dtype, op (null where nothing is reduced).
void add_task(Fields& fields, const Task& task);
// An object on one line.
std::string json_line(const Fields& fields);
// Names, and values, with commas between; texts in quotes where they need them (RFC 4180).
std::string csv_heading(const Fields& fields);
std::string csv_line(const Fields& fields);

}  // namespace lockstep::tools::bench
