// SPDX-License-Identifier: MIT
#include "tools/status_text.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "collectives/topology/json_reading.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"
#include "strategies/parameter_server/rpc/sequence_table.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;
using strategies::SequenceTable;

constexpr int kLifeBit = SequenceTable::kLifeBit;

std::uint64_t number_at(const json& object, const char* key) {
  return object.at(key).get<std::uint64_t>();
}

std::string size(std::uint64_t bytes) {
  return engine::bytes_text(double(bytes));
}

std::string size(const json& object, const char* key) {
  return size(number_at(object, key));
}

// Returns the steps by staleness, without zeros: "0: 12, 1: 40, 16 and more: 1".
std::string histogram(const json& counts) {
  std::string text;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const auto steps = counts[s].get<std::uint64_t>();
    if (steps == 0) continue;
    const bool last = s + 1 == counts.size();
    text += fmt::format("{}{}{}: {}", text.empty() ? "" : ", ", s, last ? " and more" : "", steps);
  }
  return text;
}

std::string worker_line(std::size_t number_of_worker, const json& worker) {
  if (worker.at("seconds_since").is_null())
    return fmt::format("    worker {}: no push yet\n", number_of_worker);
  const std::uint64_t lost = number_at(worker, "lost");
  const std::uint64_t last = number_at(worker, "last"), life = last >> kLifeBit;
  return fmt::format("    worker {}: push {}{}, {:.1f} s ago{}\n", number_of_worker,
                     last - (life << kLifeBit), life == 0 ? "" : fmt::format(" of start {}", life),
                     worker.at("seconds_since").get<double>(),
                     lost == 0 ? "" : fmt::format(", {} lost", lost));
}

std::string job_text(const json& job) {
  const json& pushes = job.at("pushes");
  const json& staleness = job.at("staleness");
  std::string text =
      fmt::format("    job: {}, version {}, generation {}, {}{}\n",
                  job.at("synchronous").get<bool>() ? "synchronous" : "asynchronous",
                  job.at("version").get<std::int64_t>(), number_at(job, "generation"),
                  engine::count_text(job.at("shards").size(), "shard"),
                  job.at("ready").get<bool>() ? "" : ", waits for its start values");
  text += "    pushes:";
  const char* comma = " ";
  for (const auto& [key, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"applied", "applied"},
           {"kept", "held for other workers"},
           {"late", "late"},
           {"too_stale", "too stale"},
           {"repeated", "repeated"},
           {"lost", "lost"}}) {
    text += fmt::format("{}{} {}", comma, number_at(pushes, key), name);
    comma = ", ";
  }
  text += fmt::format("; {}\n", engine::count_text(number_at(job, "pulls"), "pull"));
  text += fmt::format("    moved: {} pushed, {} pulled", size(job, "bytes_pushed"),
                      size(job, "bytes_pulled"));
  if (number_at(job, "rows_pushed") + number_at(job, "rows_pulled") > 0)
    text += fmt::format("; {} pushed, {} pulled",
                        engine::count_text(number_at(job, "rows_pushed"), "row"),
                        number_at(job, "rows_pulled"));
  text += "\n";
  if (const auto steps = number_at(staleness, "steps"); steps > 0) {
    text += fmt::format("    per step of a worker: {} pushed",
                        size(number_at(job, "bytes_pushed") / steps));
    if (const auto rows = number_at(job, "rows_pushed"); rows > 0)
      text += fmt::format(" (with {:.1f} rows of tables)", double(rows) / double(steps));
    text += "\n";
  }
  if (number_at(staleness, "steps") > 0)
    text += fmt::format("    staleness: mean {:.2f}, most {} (steps of {})\n",
                        staleness.at("mean").get<double>(), number_at(staleness, "most"),
                        histogram(staleness.at("histogram")));
  if (const auto waiting = number_at(job, "waiting_calls"); waiting > 0)
    text += fmt::format("    waiting: {}\n", engine::count_text(waiting, "call"));
  std::size_t worker = 0;
  for (const json& each : job.at("workers")) text += worker_line(worker++, each);
  return text;
}

std::string server_text(const std::string& address, const json& status) {
  const json& containers = status.at("containers");
  std::string text = fmt::format(
      "{}: a server with {}\n", address,
      containers.empty() ? "no containers" : engine::count_text(containers.size(), "container"));
  for (const json& container : containers) {
    text += fmt::format("  container {}: {}, {} of clients\n", container.at("name").dump(),
                        size(container, "bytes"),
                        engine::count_text(number_at(container, "variables"), "variable"));
    if (container.contains("job")) text += job_text(container.at("job"));
  }
  return text;
}

}  // namespace

std::string status_text(const std::string& address, const std::string& text) {
  try {
    const json status = collectives::json_reading::parse(text, "the answer");
    if (status.contains("containers")) return server_text(address, status);
    return fmt::format("{}:\n{}\n", address, status.dump(2));
  } catch (const json::exception& error) {
    engine::fail(engine::Code::kCorrupt, "{} answered something that is no status: {}", address,
                 engine::reason_of(error));
  } catch (const engine::Error& error) {
    engine::fail(engine::Code::kCorrupt, "{} answered something that is no status: {}", address,
                 error.what());
  }
}

}  // namespace lockstep::tools
