// SPDX-License-Identifier: MIT
// Division of a batch's rows among the threads of a replica, in equal parts that are always the
// same. Makes no allocations of its own.
#pragma once
#include <cstddef>

namespace lockstep::engine::cpu {

// Calls call(body, thread, first row, rows) for each thread's part in parallel; it must not throw.
void share_rows(int threads, std::size_t rows, const void* body,
                void (*call)(const void* body, int thread, std::size_t first, std::size_t rows));

// Calls a callable in the same way.
template <class Body>
void share_rows(int threads, std::size_t rows, const Body& body) {
  share_rows(threads, rows, &body,
             [](const void* b, int thread, std::size_t first, std::size_t count) {
               (*static_cast<const Body*>(b))(thread, first, count);
             });
}

}  // namespace lockstep::engine::cpu
