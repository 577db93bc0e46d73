// SPDX-License-Identifier: MIT
#include "strategies/plan_record.h"

#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"

namespace lockstep::strategies {

using nlohmann::json;

namespace {

std::size_t count_hosts(const std::vector<int>& host) {
  return std::set<int>(host.begin(), host.end()).size();
}

}  // namespace

std::string plan_record(const StepDesign& design, const std::vector<int>& host) {
  json ends = json::array();
  for (engine::Range bucket : design.buckets) ends.push_back(bucket.end);
  return json{{"algorithm", design.algorithm},
              {"update", design.update},
              {"kernels", design.kernels},
              {"reason", design.reason},
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
      log.info(
          "the checkpoint was written by {} replicas on {} hosts, which are not these: planned "
          "afresh",
          plan.at("host_of_rank").size(), count_hosts(plan.at("host_of_rank")));
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
    // Records of before there was a choice are of the direct method. A choice that was asked for
    // wins.
    const std::string kernels = plan.value("kernels", "direct");
    if (kernels != "auto" && kernels != "direct") {
      engine::fail(engine::Code::kCorrupt, "the checkpoint's plan names unknown kernels '{}'",
                   kernels);
    }
    if (options.kernels.empty()) {
      options.kernels = kernels;
    } else if (options.kernels != kernels) {
      log.warning("kernels {} were asked for, the checkpoint was written with {}: bits may differ",
                  options.kernels, kernels);
      obeyed = false;
    }
    const auto bucket_bytes = plan.at("bucket_bytes").get<std::size_t>();
    if (options.bucket_bytes != 0 && options.bucket_bytes != bucket_bytes) {
      log.warning(
          "buckets of {} bytes were asked for, the checkpoint was written with {}: bits may "
          "differ",
          options.bucket_bytes, bucket_bytes);
      return false;
    }
    options.bucket_bytes = bucket_bytes;
    options.bucket_ends = plan.at("bucket_ends").get<std::vector<std::size_t>>();
    if (obeyed) options.reason = plan.at("reason");
    return obeyed;
  } catch (const json::exception& e) {
    engine::fail(engine::Code::kCorrupt, "the checkpoint's plan cannot be read: {}", e.what());
  }
}

}  // namespace lockstep::strategies
