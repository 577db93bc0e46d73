// SPDX-License-Identifier: MIT
// Processes of tests that are threads. While one of these stands, what its thread asks the fake
// driver for (devices, and with them contexts) is of that process; without, of process 0. What is
// made in a context later, by whatever thread, is of the context's process. So of several of these
// each has addresses of its own for memory, and opens what others export, as real ones do.
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
