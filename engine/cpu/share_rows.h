// SPDX-License-Identifier: MIT
// Rows of a batch shared among the threads of a replica, in equal parts, always the same ones.
// Allocates nothing of ours.
#pragma once
#include <cstddef>

namespace lockstep::engine::cpu {

// Calls call(body, thread, first row, rows) for each thread's part, all at once; must not throw.
void share_rows(int threads, std::size_t rows, const void* body,
                void (*call)(const void* body, int thread, std::size_t first, std::size_t rows));

// The same for a callable.
template <class Body>
void share_rows(int threads, std::size_t rows, const Body& body) {
  share_rows(threads, rows, &body,
             [](const void* b, int thread, std::size_t first, std::size_t count) {
               (*static_cast<const Body*>(b))(thread, first, count);
             });
}

}  // namespace lockstep::engine::cpu
