// SPDX-License-Identifier: MIT
#include "tools/bench/fields.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <utility>

#include "collectives/topology/machine.h"
#include "engine/base/error.h"
#include "engine/base/version.h"

namespace lockstep::tools::bench {
namespace {

const char* operation(const Task& task) {
  if (task.mean) return "mean";
  switch (task.op) {
    case engine::ReduceOp::kSum:
      return "sum";
    case engine::ReduceOp::kMin:
      return "min";
    case engine::ReduceOp::kMax:
      return "max";
    case engine::ReduceOp::kProduct:
      return "product";
  }
  engine::broken("an operation without a name");
}

std::string quoted(const std::string& text) {
  if (text.find_first_of(" ,;\"\r\n") == std::string::npos) return text;
  std::string all = "\"";
  for (const char c : text) all += c == '"' ? "\"\"" : std::string(1, c);
  return all + "\"";
}

// Returns `text` of every field, separated by commas.
template <class Text>
std::string comma_joined(const Fields& fields, const Text& text) {
  std::string line;
  for (const auto& field : fields) {
    if (&field != &fields.front()) line += ',';
    line += text(field);
  }
  return line;
}

// Returns the value with 15 digits of its numbers, which hide the rounding of binary fractions.
nlohmann::json rounded(nlohmann::json value) {
  if (value.is_number_float()) return std::stod(fmt::format("{:.15g}", value.get<double>()));
  if (value.is_structured())
    for (nlohmann::json& each : value) each = rounded(std::move(each));
  return value;
}

}  // namespace

void add_task(Fields& fields, const Task& task) {
  int hosts = 0;
  for (const int host : task.host) hosts = std::max(hosts, host + 1);
  fields.emplace_back("version", engine::version());
  fields.emplace_back("host", collectives::machine().hostname);
  fields.emplace_back("ranks", task.ranks());
  fields.emplace_back("hosts", hosts);
  fields.emplace_back("threads", task.threads);
  fields.emplace_back("processor", collectives::machine().cpu);
  fields.emplace_back("collective", name(task.collective));
  fields.emplace_back("dtype", engine::name(task.dtype));
  fields.emplace_back("op", task.reduces() ? nlohmann::json(operation(task)) : nlohmann::json());
}

nlohmann::json number_or_null(std::optional<double> value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::string cell(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "-";
}

std::string us_cell(std::optional<double> us) {
  return cell(us, us.value_or(0) < 10 ? 2 : 1);
}

std::string json_line(const Fields& fields) {
  nlohmann::ordered_json object;
  for (const auto& [name, value] : fields) object[name] = rounded(value);
  return object.dump();
}

std::string csv_heading(const Fields& fields) {
  return comma_joined(fields, [](const auto& field) { return quoted(field.first); });
}

std::string csv_line(const Fields& fields) {
  return comma_joined(fields, [](const auto& field) {
    const nlohmann::json& value = field.second;
    if (value.is_null()) return std::string();
    return value.is_string() ? quoted(value.template get<std::string>()) : rounded(value).dump();
  });
}

}  // namespace lockstep::tools::bench
