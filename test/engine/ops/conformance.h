// SPDX-License-Identifier: MIT
// Tests that hold every device against the float64 reference: one body, run on all of them.
#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/reference/reference_device.h"
#include "engine/runtime/devices.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {

// `planned` rows, of which the first `used` count.
struct Rows {
  std::size_t planned, used;
};

inline StepState state_of(std::size_t used) {
  StepState state;
  state.step = 3;
  state.examples = std::int64_t(used);
  state.inverse_examples = 1.0 / 40;
  state.loss_scale = 2;
  return state;
}

class Conformance : public testing::Test {
 protected:
  // Runs `body` on the oracle and on every machine, and compares what it gives.
  void compare(const std::string& what, const std::function<Results(Machine&)>& body) {
    SCOPED_TRACE(what);
    const Results expected = body(oracle_);
    for (Machine& machine : machines_) {
      expect_close(machine, body(machine), expected);
      if (HasFatalFailure()) return;
    }
  }

  std::vector<std::unique_ptr<Device>> devices_ = all_devices();
  std::vector<Machine> machines_ = all_machines(devices_);
  std::unique_ptr<Device> oracle_device_ = reference_device();
  Machine oracle_{*oracle_device_, DType::kFloat64};
};

}  // namespace lockstep::engine
