// SPDX-License-Identifier: MIT
#include "strategies/synchronous/plan_record.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "collectives/cost/size_rules.h"
#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/quantity.h"
#include "engine/device/device.h"

namespace lockstep::strategies {

using nlohmann::json;

namespace {

std::size_t count_hosts(const std::vector<int>& host) {
  return std::set<int>(host.begin(), host.end()).size();
}

// Calls `body` with the record.
template <class Body>
auto read_record(const std::string& record, Body body) {
  try {
    return body(json::parse(record));
  } catch (const json::exception& e) {
    engine::fail(engine::Code::kCorrupt, "the checkpoint's plan cannot be read: {}",
                 engine::reason_of(e));
  }
}

std::vector<int> host_of_rank(const json& plan) {
  return plan.at("host_of_rank").get<std::vector<int>>();
}

std::string replicas_of(const std::vector<int>& host) {
  const std::size_t hosts = count_hosts(host);
  return fmt::format("{} on {}", engine::count_text(host.size(), "replica"),
                     engine::count_text(hosts, "host"));
}

std::string threads_text(int threads) {
  return engine::count_text(std::uint64_t(threads), "thread") + " a replica";
}

// All that bits depend on.
std::string rule_text(const engine::UpdateRule& rule) {
  constexpr const char* kNames[] = {"sgd", "adam", "adamw", "lars"};
  return fmt::format("{} momentum {}{} betas {} {} epsilon {} decay {} of {} clip {} trust {}{}",
                     kNames[std::size_t(rule.kind)], rule.momentum,
                     rule.nesterov ? " nesterov" : "", rule.beta1, rule.beta2, rule.epsilon,
                     rule.weight_decay, rule.decay_all ? "all parameters" : "weights",
                     rule.clip_norm, rule.trust, rule.scaling.dynamic ? " scaled dynamically" : "");
}

// Why something was chosen, where more is not known.
constexpr const char* kWritten = "the checkpoint was written so";

using Rules = std::vector<collectives::SizeRule>;

Rules rules_of(const std::string& text) {
  Rules rules = collectives::parse_size_rules(text);
  std::ranges::sort(rules, {}, &collectives::SizeRule::from);
  return rules;
}

Rules recorded_rules(const std::string& text) {
  try {
    return rules_of(text);
  } catch (const engine::Error& error) {
    engine::fail(engine::Code::kCorrupt, "the checkpoint's plan: {}", error.what());
  }
}

// What a reason says was asked for was so in another run. Once is enough.
void asked_then(std::string& reason) {
  constexpr std::string_view kAsked = "it was asked for",
                             kThen = " when the checkpoint was written";
  for (auto at = reason.find(kAsked); at != std::string::npos; at = reason.find(kAsked, at)) {
    at += kAsked.size();
    if (reason.compare(at, kThen.size(), kThen) != 0) reason.insert(at, kThen);
  }
}

}  // namespace

std::string plan_record(const StepDesign& design, const std::vector<int>& host,
                        const Arithmetic& chief) {
  json ends = json::array();
  for (engine::Range bucket : design.buckets) ends.push_back(bucket.end);
  json record{{"algorithm", design.rules},
              {"asked", design.asked},
              {"update", design.update},
              {"kernels", design.kernels},
              {"dtype", engine::name(design.dtype)},
              {"wire", design.wire},
              {"rule", rule_text(design.rule)},
              {"reason", design.reason},
              {"update_reason", design.update_reason},
              {"bucket_bytes", design.bucket_bytes},
              {"bucket_ends", ends},
              {"host_of_rank", host},
              {"threads", chief.threads},
              {"instructions", chief.instructions}};
  if (const engine::LossScaling& scaling = design.rule.scaling; scaling != engine::LossScaling())
    record["loss_scale"] = {{"dynamic", scaling.dynamic},
                            {"start", scaling.start},
                            {"growth_interval", scaling.growth_interval}};
  if (!chief.choices.empty()) record["choices"] = chief.choices;
  return record.dump();
}

bool obey_record(const std::string& record, const std::vector<int>& host, DesignOptions& options,
                 const engine::Log& log) {
  if (record.empty()) return false;
  return read_record(record, [&](const json& plan) {
    const std::string stored = plan.value("dtype", "");  // since there is more than one
    if (options.dtype && !stored.empty() && stored != engine::name(*options.dtype)) {
      log.info(
          "the checkpoint was written by a run in {}, this one is in {}: it goes on from the same "
          "numbers, planned afresh",
          stored, engine::name(*options.dtype));
      return false;
    }
    if (const std::vector<int> before = host_of_rank(plan); before != host) {
      const bool same_counts =
          before.size() == host.size() && count_hosts(before) == count_hosts(host);
      log.info("the checkpoint was written by {}, this run has {}: planned afresh",
               replicas_of(before), same_counts ? "them placed otherwise" : replicas_of(host));
      return false;
    }
    const DesignOptions wanted = options;
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
    const std::string before = plan.at("algorithm"), asked = plan.value("asked", before);
    const Rules now = rules_of(options.algorithm);  // not always in the words of then
    const Rules of_all = recorded_rules(before), of_asked = recorded_rules(asked);
    if (now == of_all || now == of_asked) options.algorithm = before;
    keep(options.algorithm, "algorithm");
    if (options.algorithm == before) {
      options.asked = asked;
      if (now.empty()) options.reason = kWritten;
    }
    keep(options.update, "update");
    if (wanted.update == "auto") options.update_reason = kWritten;
    // What was chosen for other buckets, or beside another choice, is chosen anew.
    const auto choose_algorithm = [&] {
      options.reason.clear();
      if (now.empty()) options.algorithm = options.asked = asked;
    };
    const auto choose_update = [&] {
      options.update = wanted.update, options.update_reason.clear();
    };
    if (options.algorithm != before) choose_update();
    if (options.update != plan.at("update")) choose_algorithm();
    // Records of before there was a choice are of the direct method. A choice that was asked for
    // wins.
    const std::string kernels = plan.value("kernels", "direct");
    try {
      engine::kernels_of(kernels);
    } catch (const engine::Error& error) {
      engine::fail(engine::Code::kCorrupt, "the checkpoint's plan: {}", error.what());
    }
    if (options.kernels.empty()) {
      options.kernels = kernels;
    } else if (options.kernels != kernels) {
      log.warning("kernels {} were asked for, the checkpoint was written with {}: bits may differ",
                  options.kernels, kernels);
      obeyed = false;
    }
    const std::string wire = plan.value("wire", "");  // empty: as they are
    if (options.wire.empty()) {
      options.wire = wire;
    } else if (count_hosts(host) > 1 && (options.wire == "bfloat16") != (wire == "bfloat16")) {
      log.warning("wire {} was asked for, the checkpoint was written with {}: bits may differ",
                  options.wire, wire.empty() ? "float32" : wire);
      obeyed = false;
    }
    const std::string rule = plan.value("rule", "");  // since it stands in records
    if (options.rule && !rule.empty() && rule != rule_text(*options.rule)) {
      choose_update();
      obeyed = false;
    }
    const auto bucket_bytes = plan.at("bucket_bytes").get<std::size_t>();
    if (options.bucket_bytes != 0 && options.bucket_bytes != bucket_bytes) {
      log.warning(
          "buckets of {} bytes were asked for, the checkpoint was written with {}: bits may "
          "differ",
          options.bucket_bytes, bucket_bytes);
      choose_algorithm();
      choose_update();
      return false;
    }
    options.bucket_bytes = bucket_bytes;
    options.bucket_ends = plan.at("bucket_ends").get<std::vector<std::size_t>>();
    if (obeyed) {
      options.reason = plan.at("reason");
      if (now.empty()) asked_then(options.reason);
      if (wanted.update == "auto") {
        options.update_reason = plan.value("update_reason", options.update_reason);
        asked_then(options.update_reason);
      }
    }
    return obeyed;
  });
}

std::optional<engine::LossScaling> recorded_scaling(const std::string& record,
                                                    engine::DType dtype) {
  if (record.empty() || recorded_dtype(record) != dtype) return std::nullopt;
  return read_record(record, [](const json& plan) {
    engine::LossScaling scaling;
    if (const auto found = plan.find("loss_scale"); found != plan.end()) {
      found->at("dynamic").get_to(scaling.dynamic);
      found->at("start").get_to(scaling.start);
      found->at("growth_interval").get_to(scaling.growth_interval);
    }
    return std::optional(scaling);
  });
}

std::optional<engine::DType> recorded_dtype(const std::string& record) {
  const json plan = json::parse(record, nullptr, false);
  const auto found = plan.is_object() ? plan.find("dtype") : plan.end();
  if (found == plan.end() || !found->is_string()) return std::nullopt;
  const std::string text = found->get<std::string>();
  for (const engine::DType dtype : engine::kDTypes)
    if (engine::name(dtype) == text) return dtype;
  return std::nullopt;
}

std::string recorded_choices(const std::string& record, const std::string& instructions) {
  std::string choices;
  if (record.empty()) return choices;
  read_record(record, [&](const json& plan) {
    const auto found = plan.find("choices");
    if (found != plan.end()) choices = found->value(instructions, "");
    return true;
  });
  return choices;
}

bool other_arithmetic(const std::string& record, const std::vector<int>& host,
                      const Arithmetic& chief, const engine::Log& log) {
  if (record.empty()) return false;
  return read_record(record, [&](const json& plan) {
    if (host_of_rank(plan) != host) return false;
    const int threads = plan.value("threads", chief.threads);
    const std::string instructions = plan.value("instructions", chief.instructions);
    std::string there, here;
    if (threads != chief.threads) {
      there = threads_text(threads);
      here = threads_text(chief.threads);
    }
    if (instructions != chief.instructions) {
      const char* const joint = there.empty() ? "" : " and ";
      there += fmt::format("{}the instructions {}", joint, instructions);
      here += fmt::format("{}{}", joint, chief.instructions);
    }
    if (there.empty()) return false;
    log.warning(
        "the checkpoint was written with {}, this run has {}: the last bits of sums may differ",
        there, here);
    return true;
  });
}

}  // namespace lockstep::strategies
