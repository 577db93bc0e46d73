// SPDX-License-Identifier: MIT
#include "collectives/binding.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>

namespace lockstep::collectives {
namespace {

constexpr int kMost = 1 << 16;  // processors

}  // namespace

std::vector<int> allowed_processors() {
  std::vector<int> allowed;
  for (int most = 1024; most <= kMost && allowed.empty(); most *= 2) {
    cpu_set_t* set = CPU_ALLOC(std::size_t(most));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(most));
    const bool ok = sched_getaffinity(0, bytes, set) == 0;  // fails where the kernel's is larger
    for (int i = 0; ok && i < most; ++i) {
      if (CPU_ISSET_S(i, bytes, set)) allowed.push_back(i);
    }
    CPU_FREE(set);
  }
  return allowed;
}

std::string to_text(std::span<const int> processors) {
  return fmt::format("{}", fmt::join(processors, ","));
}

std::vector<int> processors_of(const std::string& text) {
  std::vector<int> processors;
  for (const char *at = text.data(), *const end = at + text.size(); at < end; ++at) {
    int number = 0;
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0) return {};
    processors.push_back(number);
    at = next;
  }
  return processors;
}

Binding plan_binding(std::span<const HostProcess> processes, std::size_t mine, int threads,
                     int cores) {
  Binding binding;
  const HostProcess& me = processes[mine];
  binding.processors.resize(std::size_t(me.replicas));
  std::size_t before = 0, together = 0;  // replicas on the same processors
  for (std::size_t p = 0; p < processes.size(); ++p) {
    if (processes[p].processors != me.processors) continue;
    if (p < mine) before += std::size_t(processes[p].replicas);
    together += std::size_t(processes[p].replicas);
  }
  const std::size_t busy = together * std::size_t(threads), all = me.processors.size();
  const std::size_t there = std::min(all, std::size_t(std::max(1, cores)));
  if (all == 0) return binding;
  if (busy > there) {
    binding.warning = fmt::format(
        "{} replica{} of {} thread{} share {} processor{}: they take turns{}", together,
        together == 1 ? "" : "s", threads, threads == 1 ? "" : "s", there, there == 1 ? "" : "s",
        there == 1 && me.replicas * threads > 1
            ? " (mpirun binds a process to one core unless it is told --bind-to none)"
            : "");
  }
  if (busy != all || there < all) return binding;
  auto next = me.processors.begin() + std::ptrdiff_t(before * std::size_t(threads));
  for (std::vector<int>& processors : binding.processors) {
    processors.assign(next, next + threads);
    next += threads;
  }
  return binding;
}

void bind_this_thread(std::span<const int> processors) {
  if (processors.empty()) return;
  const int most = *std::max_element(processors.begin(), processors.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(std::size_t(most));
  if (set == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(std::size_t(most));
  CPU_ZERO_S(bytes, set);
  for (int processor : processors) CPU_SET_S(processor, bytes, set);
  sched_setaffinity(0, bytes, set);
  CPU_FREE(set);
}

}  // namespace lockstep::collectives
