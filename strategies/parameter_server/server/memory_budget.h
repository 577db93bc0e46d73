// SPDX-License-Identifier: MIT
// The memory that a server may use for its clients. Everything that a client can make persistent
// holds a share: variables and shards with their names, containers, waiting gradients and calls,
// chunks on loan. Shares may outlive the budget. Thread-safe; does not block.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::strategies {

class MemoryBudget {
 public:
  // Returns its bytes to the budget when it is destroyed. Move-only.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    ~Share() { resize(0); }
    std::uint64_t bytes() const { return bytes_; }
    void resize(std::uint64_t bytes);  // for a taken share; never refused

   private:
    friend class MemoryBudget;
    std::shared_ptr<std::atomic<std::uint64_t>> taken_;
    std::uint64_t bytes_ = 0;
  };

  // Limits all shares together to `most` bytes; 0: the machine's free memory now, less a reserve of
  // an eighth of it (1 GiB at most).
  explicit MemoryBudget(std::uint64_t most);
  // Throws Error(kMemory) with `what` if the budget is exhausted. `instead_of`: bytes of shares
  // that will be released in exchange.
  Share take(std::uint64_t bytes, const std::string& what, std::uint64_t instead_of = 0) const;
  Share add(std::uint64_t bytes) const;  // never refused
  // Returns whether the machine has this many bytes free now; always true if the limit was given.
  bool are_free(std::uint64_t bytes) const;
  // Throws Error(kMemory) if the shares exceed the limit, which `resize` and `add` can cause.
  void check(const std::string& what) const;
  std::uint64_t taken() const { return *taken_; }

 private:
  [[noreturn]] void refuse(const std::string& what, std::uint64_t bytes) const;
  std::uint64_t most_, reserve_ = 0;
  bool by_machine_ = false;
  std::shared_ptr<std::atomic<std::uint64_t>> taken_;
};

}  // namespace lockstep::strategies
