// SPDX-License-Identifier: MIT
#include "strategies/plan_record.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace lockstep::strategies {

using nlohmann::json;

std::string plan_record(const StepDesign& design, const std::vector<int>& host) {
  json ends = json::array();
  for (engine::Range bucket : design.buckets) ends.push_back(bucket.end);
  return json{{"algorithm", design.algorithm},
              {"update", design.update},
              {"bucket_bytes", design.bucket_bytes},
              {"bucket_ends", ends},
              {"host_of_rank", host}}
      .dump();
}

bool obey_record(const std::string& record, const std::vector<int>& host, DesignOptions& options,
                 const engine::Log& log) {
  if (record.empty()) return false;
  try {
    const json plan = json::parse(record);
    if (plan.at("host_of_rank").get<std::vector<int>>() != host) {
      log.info("the checkpoint was written by {} replicas, now there are {}: planned afresh",
               plan.at("host_of_rank").size(), host.size());
      return false;
    }
    bool obeyed = true;
    auto keep = [&](std::string& option, const char* key) {
      const std::string before = plan.at(key);
      if (option != "auto" && option != before) {
        log.warning("{} {} was asked for, the checkpoint was written with {}: bits may differ", key,
                    option, before);
        obeyed = false;
      } else {
        option = before;
      }
    };
    keep(options.algorithm, "algorithm");
    keep(options.update, "update");
    options.bucket_bytes = plan.at("bucket_bytes").get<std::size_t>();
    return obeyed;
  } catch (const json::exception& e) {
    engine::fail(engine::Code::kCorrupt, "the checkpoint's plan cannot be read: {}", e.what());
  }
}

}  // namespace lockstep::strategies
