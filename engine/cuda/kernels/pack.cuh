// SPDX-License-Identifier: MIT
// Several neighbours of an array at once: eight, by accesses of 16 bytes where they are aligned to
// that (one of values of 16 bits, two of float32), or one alone.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numbers.cuh>
#include <store.cuh>

namespace lockstep::engine::cuda {

inline constexpr unsigned kPack = 8;

template <class T, unsigned kWidth>
struct alignas(kWidth == kPack ? 16 : alignof(T)) Pack {
  T values[kWidth];
};

// What one access is of.
template <class T>
struct alignas(16) PackPart {
  T values[16 / sizeof(T)];
};
template <class T>
struct PackParts {
  PackPart<T> parts[kPack * sizeof(T) / 16];
};

// Whether all addresses are aligned for whole packs. Null is.
template <class... Addresses>
__device__ inline bool packs_at(const Addresses*... addresses) {
  return ((reinterpret_cast<std::uintptr_t>(addresses) | ...) & 15) == 0;
}

// `aligned`: to 16 bytes.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> load(const T* from, bool aligned) {
  if (kWidth == kPack && aligned) return *reinterpret_cast<const Pack<T, kWidth>*>(from);
  Pack<T, kWidth> pack;
  for (unsigned i = 0; i < kWidth; ++i) pack.values[i] = from[i];
  return pack;
}

template <unsigned kWidth, class T>
__device__ inline void store(const Pack<T, kWidth>& pack, T* to, bool aligned) {
  if constexpr (kWidth == kPack) {
    if (aligned) {
      const auto whole = std::bit_cast<PackParts<T>>(pack);
      PackPart<T>* at = reinterpret_cast<PackPart<T>*>(to);
      for (const PackPart<T>& part : whole.parts) write_wide(at++, part);
      return;
    }
  }
  for (unsigned i = 0; i < kWidth; ++i) to[i] = pack.values[i];
}

template <class T, unsigned kWidth>
__device__ inline Pack<float, kWidth> widened(const Pack<T, kWidth>& pack) {
  Pack<float, kWidth> result;
  for (unsigned i = 0; i < kWidth; ++i) result.values[i] = wide(pack.values[i]);
  return result;
}

template <class T, unsigned kWidth>
__device__ inline Pack<T, kWidth> narrowed(const Pack<float, kWidth>& pack) {
  Pack<T, kWidth> result;
  for (unsigned i = 0; i < kWidth; ++i) result.values[i] = narrow<T>(pack.values[i]);
  return result;
}

}  // namespace lockstep::engine::cuda
