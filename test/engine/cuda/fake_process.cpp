// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_process.h"

namespace lockstep::engine::cuda {
namespace {

// The process is global because the driver's functions have no argument for it.
thread_local int process = 0;

}  // namespace

FakeProcess::FakeProcess(int number) : before_(process) {
  process = number;
}

FakeProcess::~FakeProcess() {
  process = before_;
}

int FakeProcess::current() {
  return process;
}

}  // namespace lockstep::engine::cuda
