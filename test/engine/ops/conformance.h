// SPDX-License-Identifier: MIT
// A fixture for tests of every device against the float64 reference: one body runs on all of them.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/cpu/pair_products.h"
#include "engine/cpu/winograd.h"
#include "engine/reference/reference_device.h"
#include "test/engine/ops/devices.h"
#include "test/engine/ops/machine.h"

namespace lockstep::engine {

// Counts the `planned` rows, of which the first `used` are in use.
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
  Conformance() {
    for (Machine& machine : machines_)
      machine.set_roundings(roundings_under_test(machine.device()));
  }
  // Runs `body` on the oracle and on every machine, and compares the results. 16-bit machines are
  // compared with the oracle's results for the same rounded operands.
  // `takes`: selects machines; all by default. `of`: the convolution of the output and gradients in
  // the results. `product`: see Machine::tolerance.
  void compare(
      const std::string& what, const std::function<Results(Machine&)>& body,
      const std::function<bool(const Machine&)>& takes = [](const Machine&) { return true; },
      const ConvolutionSpec* of = nullptr, bool product = false) {
    SCOPED_TRACE(what);
    const Results expected = body(oracle_), rounded = body(rounded_oracle_);
    const bool has_halves = std::ranges::any_of(
        machines_, [](const Machine& machine) { return machine.dtype() == DType::kFloat16; });
    const Results halves = has_halves ? body(halves_oracle_) : Results{};
    for (Machine& machine : machines_) {
      if (!takes(machine)) continue;
      const bool narrow = machine.dtype() == DType::kBFloat16;
      const Results& oracle = narrow                               ? rounded
                              : machine.dtype() == DType::kFloat16 ? halves
                                                                   : expected;
      const int before = reported();
      try {
        expect_close(machine, body(machine), oracle,
                     of != nullptr && narrow && gradients_by_pairs(machine, *of), product);
      } catch (const Error& error) {
        ADD_FAILURE() << machine.name() << ": " << error.what();
      }
      if (reported() != before) ++failed_;
    }
  }

  // Compares the results of dense layers and convolutions, which the device's library computes.
  void compare_products(
      const std::string& what, const std::function<Results(Machine&)>& body,
      const std::function<bool(const Machine&)>& takes = [](const Machine&) { return true; },
      const ConvolutionSpec* of = nullptr) {
    compare(what, body, takes, of, true);
  }

  // Returns whether so many failures were reported that a test should stop. A failure on one
  // machine says little; the other machines and problems show its extent.
  bool enough_failed() const { return failed_ >= 12; }

  // Returns whether the gradients may be sums of products of rounded factors (pair_products.h).
  static bool gradients_by_pairs(const Machine& m, const ConvolutionSpec& s) {
    return m.dtype() == DType::kBFloat16 && m.kernels() != Kernels::kDirect &&
           cpu::winograd_fits(s) && cpu::has_pair_products();
  }
  // Returns whether a fused convolution and pool choose the place of a maximum before rounding, as
  // the oracle does. If the convolution's output has 16 bits, several places of a window are often
  // equal, and the first of them wins.
  static bool chooses_unrounded(const Machine& m, const PooledConvolutionSpec& p) {
    return size_of(m.dtype()) != 2 || (m.kernels() == Kernels::kWinograd && p.window == 2 &&
                                       cpu::winograd_fits(p.convolution));
  }

  std::vector<std::unique_ptr<Device>> devices_ = devices_under_test();
  std::vector<Machine> machines_ = all_machines(devices_);
  std::unique_ptr<Device> oracle_device_ = reference_device();
  Machine oracle_{*oracle_device_, DType::kFloat64};
  // The oracles with the rounded operands of 16-bit kernels.
  Machine rounded_oracle_ = oracle_of(DType::kBFloat16),
          halves_oracle_ = oracle_of(DType::kFloat16);

 private:
  static int reported() {
    return testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  }
  Machine oracle_of(DType narrow) {
    Machine made(*oracle_device_, DType::kFloat64);
    made.round_to(narrow);
    return made;
  }

  int failed_ = 0;  // results of a machine
};

}  // namespace lockstep::engine
