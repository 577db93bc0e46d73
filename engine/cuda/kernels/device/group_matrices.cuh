// SPDX-License-Identifier: MIT
// Products of matrices in shared memory by warpgroups: "wgmma" (PTX ISA). A warpgroup is four
// warps, and the index of the first is a multiple of 4. Only GPUs of compute capability 9.0 have
// these instructions, for code compiled for sm_90a. The tests have a file of the same name.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/base/half.h"

namespace lockstep::engine::cuda {

inline constexpr bool kHasGroups = __CUDA_ARCH__ == 900;
inline constexpr unsigned kGroupThreads = 128;

// Descriptor of a matrix of 16-bit numbers, made of 8x8 core matrices without swizzle. A core
// matrix is eight contiguous pieces of 16 bytes. Adjacent core matrices are `summed` bytes apart
// along the dimension that the product sums over, and `kept` bytes apart along the other one.
class GroupMatrix {
 public:
  __device__ GroupMatrix(const std::byte* at, unsigned summed, unsigned kept)
      : words_(std::uint64_t(__cvta_generic_to_shared(at)) >> 4 | std::uint64_t(summed) >> 4 << 16 |
               std::uint64_t(kept) >> 4 << 32) {}
  // Returns the matrix that begins `bytes` later.
  __device__ GroupMatrix further(unsigned bytes) const {
    GroupMatrix result = *this;
    result.words_ += bytes / 16;
    return result;
  }
  __device__ std::uint64_t words() const { return words_; }

 private:
  std::uint64_t words_;
};

// Returns the value of the first lane in all lanes of the warp. The compiler can then compute what
// follows from it once per warp, which these instructions need.
__device__ inline unsigned of_first_lane(unsigned value) {
  return __shfl_sync(0xffffffff, value, 0);
}

// Makes this thread's writes to shared memory visible to the tensor cores after the next barrier.
__device__ inline void show_to_group() {
  if constexpr (kHasGroups) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Keeps the compiler from moving accesses to the sums across this point. Call it before and after
// the products that add to them.
template <unsigned kCount>
__device__ inline void fence_sums(float (&sums)[kCount]) {
  if constexpr (kHasGroups)
    for (float& sum : sums) asm volatile("" : "+f"(sum)::"memory");
}
// Begins a series of products. All their sums must be fenced before.
__device__ inline void begin_products() {
  if constexpr (kHasGroups) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Ends a series of products.
__device__ inline void end_products() {
  if constexpr (kHasGroups) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until all products are in their sums. Fence the sums afterwards.
__device__ inline void wait_for_products() {
  if constexpr (kHasGroups) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

template <unsigned kColumns, bool kTurnA, bool kTurnB>
__device__ inline void multiply_add_float16(float (&s)[kColumns / 2], const GroupMatrix& a,
                                            const GroupMatrix& b) {
  if constexpr (kColumns == 8) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
        "{%0, %1, %2, %3}, "
        "%4, %5, 1, 1, 1, %6, %7;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  } else if constexpr (kColumns == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, 1, 1, 1, %18, %19;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
          "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
          "+f"(s[14]), "+f"(s[15])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  } else if constexpr (kColumns == 64) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, %34, %35;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
          "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
          "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]),
          "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]),
          "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "%48, %49, 1, 1, 1, %50, %51;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
          "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
          "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]),
          "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]),
          "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]), "+f"(s[32]), "+f"(s[33]), "+f"(s[34]),
          "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), "+f"(s[40]), "+f"(s[41]),
          "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  }
}

template <unsigned kColumns, bool kTurnA, bool kTurnB>
__device__ inline void multiply_add_bfloat16(float (&s)[kColumns / 2], const GroupMatrix& a,
                                             const GroupMatrix& b) {
  if constexpr (kColumns == 8) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3}, "
        "%4, %5, 1, 1, 1, %6, %7;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  } else if constexpr (kColumns == 32) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
        "%16, %17, 1, 1, 1, %18, %19;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
          "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
          "+f"(s[14]), "+f"(s[15])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  } else if constexpr (kColumns == 64) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
        "%32, %33, 1, 1, 1, %34, %35;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
          "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
          "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]),
          "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]),
          "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, "
        "%48, %49, 1, 1, 1, %50, %51;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]),
          "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]),
          "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]), "+f"(s[18]), "+f"(s[19]), "+f"(s[20]),
          "+f"(s[21]), "+f"(s[22]), "+f"(s[23]), "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]),
          "+f"(s[28]), "+f"(s[29]), "+f"(s[30]), "+f"(s[31]), "+f"(s[32]), "+f"(s[33]), "+f"(s[34]),
          "+f"(s[35]), "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), "+f"(s[40]), "+f"(s[41]),
          "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47])
        : "l"(a.words()), "l"(b.words()), "n"(kTurnA), "n"(kTurnB));
  }
}

// Computes sums += a b, for a of 64 x 16 and b of 16 x kColumns numbers of the 16-bit type T. The
// 16-byte pieces belong to rows of a (columns with kTurnA) and to columns of b (rows with kTurnB).
// Let g = lane / 4 and t = lane % 4. For each eight columns, a lane of warp w of the warpgroup
// holds four sums. Their rows are 16 w + g, 16 w + g, 16 w + g + 8, 16 w + g + 8; their columns are
// 2 t, 2 t + 1, 2 t, 2 t + 1.
template <class T, unsigned kColumns, bool kTurnA, bool kTurnB>
__device__ inline void multiply_add(float (&s)[kColumns / 2], const GroupMatrix& a,
                                    const GroupMatrix& b) {
  static_assert(kColumns == 8 || kColumns == 32 || kColumns == 64 || kColumns == 96);
  if constexpr (kHasGroups && std::is_same_v<T, Half>)
    multiply_add_float16<kColumns, kTurnA, kTurnB>(s, a, b);
  else if constexpr (kHasGroups)
    multiply_add_bfloat16<kColumns, kTurnA, kTurnB>(s, a, b);
}

}  // namespace lockstep::engine::cuda
