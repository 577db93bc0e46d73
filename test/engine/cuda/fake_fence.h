// SPDX-License-Identifier: MIT
// Protects memory while a kernel runs whose GPU cannot reach it. An access is recorded and
// continues with all of the memory open; the fake then reports the error of a GPU. At most one
// fence exists at a time, and nothing else may use the memory meanwhile. Costs one system call per
// block.
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
