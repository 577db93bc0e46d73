// SPDX-License-Identifier: MIT
// Small matrices that the lanes of a warp hold and multiply, dynamic shared memory, and
// asynchronous copies into it. The tests have a file of the same name.
#pragma once
#include <cstdint>
#include <type_traits>

#include "engine/base/half.h"

namespace lockstep::engine::cuda {

// Returns the block's dynamic shared memory (Grid::shared), uninitialized and aligned to 16 bytes.
__device__ inline std::byte* window() {
  extern __shared__ uint4 lockstep_window[];
  return reinterpret_cast<std::byte*>(lockstep_window);
}

__device__ inline unsigned shared_address(const void* at) {
  return unsigned(__cvta_generic_to_shared(at));
}

// Starts a copy of 16 bytes from global to shared memory. Both addresses are aligned to 16.
__device__ inline void copy_async(std::byte* to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from)
               : "memory");
}
// Ends a group of copies of this thread.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until all groups of this thread but the latest `kLeft` have arrived. A barrier makes them
// visible to other threads.
template <unsigned kLeft>
__device__ inline void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Loads four 8x8 matrices of 16-bit numbers, transposed. Lane 8 m + i gives the address of row i of
// matrix m. Word m of lane 4 c + r then holds column c of rows 2 r and 2 r + 1.
__device__ inline void load_transposed(std::uint32_t (&words)[4], const std::byte* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared_address(row))
               : "memory");
}

// Computes sums += a b, for a of 16x16 and b of 16x8 numbers of the 16-bit type T. Let g = lane / 4
// and t = lane % 4. A lane's words of a are in rows g, g + 8, g, g + 8 at columns 2 t and 2 t + 1;
// the last two words are 8 columns further. Its words of b are in column g: rows 2 t, 2 t + 1, 2 t
// + 8, 2 t + 9. Its sums are in columns 2 t, 2 t + 1, 2 t, 2 t + 1 of rows g, g, g + 8, g + 8.
template <class T>
__device__ inline void multiply_add(float (&sums)[4], const std::uint32_t (&a)[4],
                                    const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, Half>) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

}  // namespace lockstep::engine::cuda
