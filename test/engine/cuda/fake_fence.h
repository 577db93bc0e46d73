// SPDX-License-Identifier: MIT
// Memory that is closed while a kernel runs, because its GPU does not reach it. What touches it is
// noticed and goes on, with all of it open: the fake then has the error that a GPU has. At most one
// fence at a time, and while it stands nobody else may use that memory. Costs a call of the system
// for each block; nothing where there are none.
#pragma once
#include <csignal>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::engine::cuda {

class FakeFence {
 public:
  explicit FakeFence(std::vector<std::span<std::byte>> pages);
  ~FakeFence();
  FakeFence(const FakeFence&) = delete;
  FakeFence& operator=(const FakeFence&) = delete;
  bool touched() const { return touched_ != 0; }

 private:
  static void on_fault(int signal, siginfo_t* about, void*);
  bool holds(const void* address) const;
  void set(int protection) const;

  std::vector<std::span<std::byte>> pages_;
  volatile std::sig_atomic_t touched_ = 0;
  struct sigaction before_ = {};
};

}  // namespace lockstep::engine::cuda
