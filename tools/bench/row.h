// SPDX-License-Identifier: MIT
// A line of a benchmark's results, for people and for programs. Plain values; pure functions.
//
// `field_help` describes the columns, and the fields of JSON and CSV.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tools/bench/measure.h"

namespace lockstep::tools::bench {

// Names the other library that is timed; it has columns of its own.
enum class Rival { kNone, kMpi, kNccl };

struct Row {
  Task task;
  std::size_t bytes = 0, count = 0;  // per rank
  Choice choice;
  Measured measured;
  double barrier_ns = 0;     // 0: not measured
  std::string devices = {};  // one per rank, such as "cuda:0,cuda:1"
  double algbw() const { return double(bytes) / measured.in_place.median / 1e3; }  // GB/s, in place
  double busbw() const { return algbw() * task.bus_factor(); }
  std::optional<double> roofline_percent() const;
  std::optional<double> rival_us() const;
  std::optional<double> ratio() const;         // the rival's time over lockstep's, in place
  std::optional<double> copied_ratio() const;  // the same with buffers of each process
};

enum class Form { kTable, kCsv, kJson };

// Returns the wrong elements. If nothing was compared: null, an empty cell, or "-" in a table.
nlohmann::json wrong_json(const Wrong& wrong);
std::string wrong_cell(const Wrong& wrong, Form form);

// Returns the marks after an algorithm in a table: "*" if the planner would choose it, and "!" if a
// rank waited for a processor; else blanks.
std::string marks(const Choice& choice, const collectives::ProcessorWait& wait);
// Describes the columns and fields, for --help.
std::string field_help();
constexpr const char* kMarked = "*: chosen by the planner";
constexpr const char* kDisturbed = "!: a rank waited for a processor";
// Returns the meanings of the marks that these rows have, a line each, without the last end.
std::string legend(const std::vector<Row>& rows);

// Returns the column names; empty in JSON. Rows of ranks on devices have columns of their own;
// their rival is NCCL.
std::string heading(Form form, Rival rival);
std::string to_text(const Row& row, Form form, Rival rival);
// Returns lines for people: how many predictions were good, and the reasons of the planner's
// choices. Empty without predictions.
std::string summary(const std::vector<Row>& rows);
// Returns whether most predictions are more than twice off, as if the machine had changed its
// speed.
bool mostly_off(const std::vector<Row>& rows);

}  // namespace lockstep::tools::bench
