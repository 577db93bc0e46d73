// SPDX-License-Identifier: MIT
// A line of a benchmark's results as names and values, the same in JSON and in CSV. Numbers have
// all their digits. A value that was not measured is null in JSON and an empty cell in CSV. Pure
// functions.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/bench/work.h"

namespace lockstep::tools::bench {

using Fields = std::vector<std::pair<std::string, nlohmann::json>>;

// Adds the fields of every line: ranks, hosts, collective, dtype, op (null if nothing is reduced).
void add_task(Fields& fields, const Task& task);
nlohmann::json number_or_null(std::optional<double> value);
// Returns the text of a number in a table, "-" without one. Microseconds have a digit more if they
// are few.
std::string cell(std::optional<double> value, int digits);
std::string us_cell(std::optional<double> us);

// Returns a JSON object on one line.
std::string json_line(const Fields& fields);
// Returns the names, or the values, separated by commas. Texts are quoted if necessary (RFC 4180).
std::string csv_heading(const Fields& fields);
std::string csv_line(const Fields& fields);

}  // namespace lockstep::tools::bench
