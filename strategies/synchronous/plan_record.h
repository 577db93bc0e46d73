// SPDX-License-Identifier: MIT
// The plan of a membership in a checkpoint's manifest, and its use by a later run. The same
// replicas on the same hosts use the same plan again, since it determines the order of summation
// and thus the bits. Any other membership gets a new plan. The arithmetic also affects the bits,
// but a run cannot choose it freely, so it is only recorded and compared.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "strategies/synchronous/step_design.h"

namespace lockstep::strategies {

// Describes how replicas add within their kernels, as far as the plan does not determine it.
struct Arithmetic {
  int threads = 1;  // library threads per replica
  // engine::Device::instructions; of each replica if they differ.
  std::string instructions = {};
  // engine::Device::choices by the devices' instructions, for devices that made any.
  std::map<std::string, std::string> choices = {};
};

// Returns the record as JSON. `chief`: the arithmetic of the process of rank 0. Other processes may
// compute their gradients differently; mirrors stay equal, since all use the same sums.
std::string plan_record(const StepDesign& design, const std::vector<int>& host,
                        const Arithmetic& chief);

// Applies the record's choices to `options` if the membership is the same. Explicit options win,
// with a warning that bits may differ. Returns whether all choices were applied. A record with
// another type of weights is not applied; one log line says so. Throws Error(kCorrupt) if the text
// is not a record.
bool obey_record(const std::string& record, const std::vector<int>& host, DesignOptions& options,
                 const engine::Log& log);

// Returns the type of weights in the run that wrote the record. Returns nothing if the record lacks
// it or is of another kind.
std::optional<engine::DType> recorded_dtype(const std::string& record);

// Returns the loss scaling of the run that wrote the record, or nothing if its weights had another
// type or there is no record. Throws Error(kCorrupt) if the text is not a record.
std::optional<engine::LossScaling> recorded_scaling(const std::string& record, engine::DType dtype);

// Returns the kernel choices that devices with these instructions made in the run that wrote the
// record; empty if there were none. Throws Error(kCorrupt) if the text is not a record.
std::string recorded_choices(const std::string& record, const std::string& instructions);

// Returns true, and logs one warning, if the same replicas on the same hosts wrote the record with
// other threads or instructions. Throws Error(kCorrupt) if the text is not a record.
bool other_arithmetic(const std::string& record, const std::vector<int>& host,
                      const Arithmetic& chief, const engine::Log& log);

}  // namespace lockstep::strategies
