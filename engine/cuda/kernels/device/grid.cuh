// SPDX-License-Identifier: MIT
// The interface of a kernel to its machine: indices, and communication between the threads of a
// block and of a warp. This file is for GPUs; the tests have a file of the same name that emulates
// one. Grids have two dimensions, blocks and block rows. Blocks have one, and consist of whole
// warps of 32 threads.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep::engine::cuda {

__device__ inline unsigned block() {
  return blockIdx.x;
}
__device__ inline unsigned blocks() {
  return gridDim.x;
}
__device__ inline unsigned block_row() {
  return blockIdx.y;
}
__device__ inline unsigned block_rows() {
  return gridDim.y;
}
__device__ inline unsigned thread() {
  return threadIdx.x;
}
__device__ inline unsigned threads() {
  return blockDim.x;
}

// Waits until the previous kernel of the stream has ended and its writes are visible, then allows
// the next kernel to start early. Every thread of every kernel calls this first. The previous
// kernel waited as well before it ended, so all earlier kernels have ended, too. Waiting blocks
// cannot deadlock: they start when all blocks of the previous kernel have passed this line.
//
// GPUs below compute capability 9.0 never start a kernel early.
__device__ inline void wait_for_earlier_kernels() {
  if constexpr (__CUDA_ARCH__ >= 900) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  }
}

// Waits until all threads of the block arrive.
__device__ inline void barrier() {
  __syncthreads();
}

// Waits until all lanes of the warp arrive, and makes their earlier writes visible to each other.
__device__ inline void warp_barrier() {
  __syncwarp();
}

// Returns the value of the lane `distance` further; lanes without one get their own. All lanes of
// the warp call it.
template <class V>
__device__ inline V shuffle_down(V value, unsigned distance) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8);
  return __shfl_down_sync(0xffffffff, value, distance);
}

// Returns the value of the lane whose index differs in the bits of `mask`. All lanes of the warp
// call it.
template <class V>
__device__ inline V shuffle_xor(V value, unsigned mask) {
  static_assert(sizeof(V) == 4 || sizeof(V) == 8);
  return __shfl_xor_sync(0xffffffff, value, int(mask));
}

// Returns the value at an address that is aligned for its type.
template <class V>
__device__ inline V read_aligned(const V* from) {
  return *from;
}

// Returns a value of 16 bytes, aligned to 16, with one access. Compilers split arrays of narrow
// values into several.
template <class V>
__device__ inline V read_wide(const V* from) {
  static_assert(sizeof(V) == sizeof(uint4));
  return std::bit_cast<V>(__ldcg(reinterpret_cast<const uint4*>(from)));
}

// Returns uninitialized shared memory of the block for `kCount` values: one array for each V,
// kCount and kWhich. A kernel has 48 KiB.
template <class V, std::size_t kCount, int kWhich = 0>
__device__ inline V* shared() {
  __shared__ V values[kCount];
  return values;
}

__device__ inline void atomic_add(std::uint64_t* to, std::uint64_t value) {
  static_assert(sizeof(std::uint64_t) == sizeof(unsigned long long));
  atomicAdd(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}
// Adds one to *to and returns the old value. What the block wrote before its last barrier is
// visible to blocks that count later, after their next barrier.
__device__ inline std::uint32_t count_up(std::uint32_t* to) {
  return __nv_atomic_fetch_add(to, 1u, __NV_ATOMIC_ACQ_REL, __NV_THREAD_SCOPE_DEVICE);
}
// Returns the index of the lowest set bit; `bits` is not 0. nvcc compiles std::countr_zero to the
// constant 32 in device code.
__device__ inline unsigned lowest_bit(std::uint32_t bits) {
  return unsigned(__ffs(int(bits)) - 1);
}
// Reads a value that other blocks of the same kernel may have written.
__device__ inline double read_fresh(const double* from) {
  return __ldcg(from);
}
__device__ inline void atomic_min(std::uint64_t* to, std::uint64_t value) {
  atomicMin(reinterpret_cast<unsigned long long*>(to), static_cast<unsigned long long>(value));
}

}  // namespace lockstep::engine::cuda
