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

// Calls `body` with the parsed record.
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

// Returns all values of the rule that affect bits.
std::string rule_text(const engine::UpdateRule& rule) {
  constexpr const char* kNames[] = {"sgd", "adam", "adamw", "lars"};
  return fmt::format("{} momentum {}{} betas {} {} epsilon {} decay {} of {} clip {} trust {}{}",
                     kNames[std::size_t(rule.kind)], rule.momentum,
                     rule.nesterov ? " nesterov" : "", rule.beta1, rule.beta2, rule.epsilon,
                     rule.weight_decay, rule.decay_all ? "all parameters" : "weights",
                     rule.clip_norm, rule.trust, rule.scaling.dynamic ? " scaled dynamically" : "");
}

// Reason for a recorded choice without a known reason.
constexpr const char* kWritten = "the checkpoint was written so";

// Calls `body`; its errors become errors of the record.
template <class Body>
auto recorded(Body body) {
  try {
    return body();
  } catch (const engine::Error& error) {
    engine::fail(engine::Code::kCorrupt, "the checkpoint's plan: {}", error.what());
  }
}

collectives::AlgorithmRules rules_in(const json& plan, const char* key) {
  return recorded([&] { return collectives::AlgorithmRules(plan.at(key).get<std::string>()); });
}

std::optional<engine::DType> wire_in(const json& plan) {
  const std::string wire = plan.at("wire");
  if (wire.empty()) return std::nullopt;
  return recorded([&] { return engine::dtype_of(wire); });
}

// Tracks whether all choices of a record are applied, and warns about each that is not.
class RecordedChoices {
 public:
  RecordedChoices(const engine::Log& log) : log_(log) {}
  void differs(std::string_view what, std::string_view asked, std::string_view before) {
    log_.warning("{} {} was asked for, the checkpoint was written with {}: bits may differ", what,
                 asked, before);
    obeyed_ = false;
  }
  void disobey() { obeyed_ = false; }
  bool obeyed() const { return obeyed_; }

 private:
  const engine::Log& log_;
  bool obeyed_ = true;
};

// Applies the choices of a record of the same replicas that `options` leave open. Returns whether
// all of its choices are applied.
bool obey_choices(const json& plan, const std::vector<int>& host, DesignOptions& options,
                  const engine::Log& log) {
  RecordedChoices choices(log);
  const DesignOptions wanted = options;
  const collectives::AlgorithmRules before = rules_in(plan, "algorithm"),
                                    asked = rules_in(plan, "asked");
  const Update update = recorded([&] { return update_of(plan.at("update").get<std::string>()); });
  const bool free = wanted.step.algorithm.automatic();
  // The algorithm that was requested then, or chosen for that request, is not a different choice.
  const bool same = free || wanted.step.algorithm == before || wanted.step.algorithm == asked;
  if (same) {
    options.step.algorithm = before;
    options.asked = asked;
    if (free) options.reason = kWritten;
  } else {
    choices.differs("algorithm", wanted.step.algorithm.text(), before.text());
  }
  if (wanted.step.update == Update::kAutomatic) {
    options.step.update = update;
    options.update_reason = kWritten;
  } else if (wanted.step.update != update) {
    choices.differs("update", name(wanted.step.update), name(update));
  }
  // Choices that were made for other buckets, or together with a choice that differs, are made
  // again.
  const auto choose_algorithm = [&] {
    options.reason.clear();
    if (free) options.step.algorithm = asked, options.asked = asked;
  };
  const auto choose_update = [&] {
    options.step.update = wanted.step.update;
    options.update_reason.clear();
  };
  if (!same) choose_update();
  if (options.step.update != update) choose_algorithm();
  const engine::Kernels kernels =
      recorded([&] { return engine::kernels_of(plan.at("kernels").get<std::string>()); });
  if (!wanted.step.kernels) {
    options.step.kernels = kernels;
  } else if (wanted.step.kernels != kernels) {
    log.warning("kernels {} were asked for, the checkpoint was written with {}: bits may differ",
                engine::name(*wanted.step.kernels), engine::name(kernels));
    choices.disobey();
  }
  const auto wire = wire_in(plan);
  const auto narrow = [](const auto& one) { return one == engine::DType::kBFloat16; };
  if (!wanted.step.wire) {
    options.step.wire = wire;
  } else if (count_hosts(host) > 1 && narrow(wanted.step.wire) != narrow(wire)) {
    choices.differs("wire", engine::name(*wanted.step.wire),
                    engine::name(wire.value_or(engine::DType::kFloat32)));
  }
  if (wanted.rule && plan.at("rule").get<std::string>() != rule_text(*wanted.rule)) {
    choose_update();
    choices.disobey();
  }
  const auto bucket_bytes = plan.at("bucket_bytes").get<std::size_t>();
  if (wanted.step.bucket_bytes != 0 && wanted.step.bucket_bytes != bucket_bytes) {
    log.warning(
        "buckets of {} bytes were asked for, the checkpoint was written with {}: bits may "
        "differ",
        wanted.step.bucket_bytes, bucket_bytes);
    choose_algorithm();
    choose_update();
    return false;
  }
  options.step.bucket_bytes = bucket_bytes;
  options.bucket_ends = plan.at("bucket_ends").get<std::vector<std::size_t>>();
  if (choices.obeyed()) {
    if (free || wanted.step.algorithm != before) options.reason = plan.at("reason");
    if (wanted.step.update == Update::kAutomatic) options.update_reason = plan.at("update_reason");
  }
  return choices.obeyed();
}

}  // namespace

std::string plan_record(const StepDesign& design, const std::vector<int>& host,
                        const Arithmetic& chief) {
  json ends = json::array();
  for (engine::Range bucket : design.buckets) ends.push_back(bucket.end);
  json record{{"algorithm", design.rules},
              {"asked", design.asked.text()},
              {"update", name(design.update)},
              {"kernels", engine::name(design.kernels)},
              {"dtype", engine::name(design.dtype)},
              {"wire", design.wire ? engine::name(*design.wire) : std::string_view()},
              {"rule", rule_text(design.rule)},
              {"reason", design.reason.text(true)},
              {"update_reason", design.update_reason.text(true)},
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
    const std::string stored = plan.at("dtype");
    if (options.step.dtype && stored != engine::name(*options.step.dtype)) {
      log.info(
          "the checkpoint was written by a run in {}, this one is in {}: it goes on from the same "
          "numbers, planned afresh",
          stored, engine::name(*options.step.dtype));
      return false;
    }
    if (const std::vector<int> before = host_of_rank(plan); before != host) {
      const bool same_counts =
          before.size() == host.size() && count_hosts(before) == count_hosts(host);
      log.info("the checkpoint was written by {}, this run has {}: planned afresh",
               replicas_of(before), same_counts ? "them placed otherwise" : replicas_of(host));
      return false;
    }
    return obey_choices(plan, host, options, log);
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
    const int threads = plan.at("threads");
    const std::string instructions = plan.at("instructions");
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
