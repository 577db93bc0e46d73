// SPDX-License-Identifier: MIT
#include "engine/cpu/share_rows.h"

#include <atomic>

namespace lockstep::engine::cpu {

// OpenMP's own barriers order everything. `door` repeats the order in terms that the thread
// sanitizer understands.
void share_rows(int threads, std::size_t rows, const void* body,
                void (*call)(const void* body, int thread, std::size_t first, std::size_t rows)) {
  if (threads == 1) return call(body, 0, 0, rows);
  const auto begin = [&](int thread) { return rows * std::size_t(thread) / std::size_t(threads); };
  std::atomic<int> door{0};
  door.store(1, std::memory_order_release);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int thread = 0; thread < threads; ++thread) {
    door.load(std::memory_order_acquire);
    call(body, thread, begin(thread), begin(thread + 1) - begin(thread));
    door.fetch_add(1, std::memory_order_acq_rel);
  }
  door.load(std::memory_order_acquire);
}

}  // namespace lockstep::engine::cpu
