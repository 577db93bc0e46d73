// SPDX-License-Identifier: MIT
// Simulates processes by threads. While a FakeProcess exists, devices and contexts that its thread
// requests from the fake driver belong to that process; otherwise to process 0. Objects created in
// a context later belong to the context's process, whichever thread creates them. Each process has
// its own memory addresses and opens the exports of others, like real ones.
#pragma once

namespace lockstep::engine::cuda {

class FakeProcess {
 public:
  explicit FakeProcess(int number);
  ~FakeProcess();
  FakeProcess(const FakeProcess&) = delete;
  FakeProcess& operator=(const FakeProcess&) = delete;
  static int current();  // of the calling thread

 private:
  int before_;
};

}  // namespace lockstep::engine::cuda
