// SPDX-License-Identifier: MIT
// The plan of a membership as it stands in a checkpoint's manifest, and what a later run does with
// it. The same replicas on the same hosts use the same plan again, since it fixes the order of
// summation and with it the bits; any other membership plans afresh. What the bits depend on and no
// run can choose freely, the arithmetic, is recorded too and only compared.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

// How replicas add within their kernels, as far as it is not chosen by the plan.
struct Arithmetic {
  int threads = 1;                // library threads of a replica
  std::string instructions = {};  // engine::Device::instructions; of each replica where they differ
  // engine::Device::choices of the devices that made any, by their instructions.
  std::map<std::string, std::string> choices = {};
};

// JSON. `chief`: of the process of rank 0. Others may compute their gradients differently: mirrors
// are equal all the same, since all take the same sums.
std::string plan_record(const StepDesign& design, const std::vector<int>& host,
                        const Arithmetic& chief);

// Changes `options` to the record's where the membership is the same and nothing else was asked for
// (options that were given win, with a warning that bits may differ). True when it was obeyed.
// Not obeyed either where it is of weights of another type; one line says so.
// Throws Error(kCorrupt) for text that is no record.
bool obey_record(const std::string& record, const std::vector<int>& host, DesignOptions& options,
                 const engine::Log& log);

// The type of the weights of the run that wrote the record; none where that does not stand in it,
// or it is no record of this kind.
std::optional<engine::DType> recorded_dtype(const std::string& record);

// How the losses of the run that wrote the record were scaled; none where it was of another type of
// weights, or there is no record. Throws Error(kCorrupt) for text that is no record.
std::optional<engine::LossScaling> recorded_scaling(const std::string& record, engine::DType dtype);

// The choices of kernels that devices of such instructions had made in the run that wrote the
// record; empty where there were none. Throws Error(kCorrupt) for text that is no record.
std::string recorded_choices(const std::string& record, const std::string& instructions);

// True where the same replicas on the same hosts wrote the record with other threads or other
// instructions: then one warning says what differs. Throws Error(kCorrupt) for text that is no
// record.
bool other_arithmetic(const std::string& record, const std::vector<int>& host,
                      const Arithmetic& chief, const engine::Log& log);

}  // namespace lockstep::strategies
