// SPDX-License-Identifier: MIT
// The memory that a server may take for what its clients create. Everything that a client can make
// stay holds a share: variables and shards with their names, containers, gradients and calls that
// wait, chunks that are on loan. Shares may outlive the budget. Any thread; nobody waits.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::strategies {

class MemoryBudget {
 public:
  // Gives its bytes back when it is destroyed. Move-only.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept;
    Share& operator=(Share&& other) noexcept;
    ~Share() { resize(0); }
    std::uint64_t bytes() const { return bytes_; }
    void resize(std::uint64_t bytes);  // of a share that was taken; is not refused

   private:
    friend class MemoryBudget;
    std::shared_ptr<std::atomic<std::uint64_t>> taken_;
    std::uint64_t bytes_ = 0;
  };

  // `most`: bytes of all shares; 0: what the machine has free now, less a reserve.
  explicit MemoryBudget(std::uint64_t most);
  // Throws Error(kMemory) naming `what` where there is no room. `instead_of`: bytes of shares that
  // will be given back for it.
  Share take(std::uint64_t bytes, const std::string& what, std::uint64_t instead_of = 0) const;
  Share add(std::uint64_t bytes) const;  // is not refused
  // Whether the machine has so many bytes free now; true where the limit was given.
  bool are_free(std::uint64_t bytes) const;
  // Throws Error(kMemory) where more is taken than may be: what is resized or added may do that.
  void check(const std::string& what) const;
  std::uint64_t taken() const { return *taken_; }

 private:
  [[noreturn]] void refuse(const std::string& what, std::uint64_t bytes) const;
  std::uint64_t most_, reserve_ = 0;
  bool by_machine_ = false;
  std::shared_ptr<std::atomic<std::uint64_t>> taken_;
};

}  // namespace lockstep::strategies
