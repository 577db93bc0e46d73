// SPDX-License-Identifier: MIT
// Packs of neighboring array elements: eight, four, or a single one. Accesses have up to 16 bytes
// if the address is aligned; eight float32 are two accesses.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <grid.cuh>
#include <numbers.cuh>
#include <store.cuh>
#include <type_traits>
#include <utility>

namespace lockstep::engine::cuda {

inline constexpr unsigned kPack = 8;

template <class T, unsigned kWidth>
struct alignas(kWidth == 1               ? alignof(T)
               : kWidth * sizeof(T) < 16 ? kWidth * sizeof(T)
                                         : 16) Pack {
  T values[kWidth];
};

// Calls body(0), ..., body(kCount - 1), unrolled.
template <unsigned kCount, class Body>
__device__ inline void repeat(Body body) {
  [&]<unsigned... kPlaces>(std::integer_sequence<unsigned, kPlaces...>) {
    (body(kPlaces), ...);
  }
  (std::make_integer_sequence<unsigned, kCount>());
}

template <unsigned kWidth>
using Width = std::integral_constant<unsigned, kWidth>;

// Holds the part of a pack that one access covers.
template <class T>
struct alignas(16) PackPart {
  T values[16 / sizeof(T)];
};
template <class T, unsigned kWidth>
struct PackParts {
  PackPart<T> parts[kWidth * sizeof(T) / 16];
};

// Returns whether all addresses are aligned for whole packs. Null is aligned.
template <class... Addresses>
__device__ inline bool packs_at(const Addresses*... addresses) {
  return ((reinterpret_cast<std::uintptr_t>(addresses) | ...) & 15) == 0;
}

// Loads a pack. `aligned`: the address is aligned to 16 bytes.
template <unsigned kWidth, class T>
__device__ inline Pack<T, kWidth> load(const T* from, bool aligned) {
  if (kWidth > 1 && aligned) return read_aligned(reinterpret_cast<const Pack<T, kWidth>*>(from));
  Pack<T, kWidth> pack;
  for (unsigned i = 0; i < kWidth; ++i) pack.values[i] = from[i];
  return pack;
}

template <unsigned kWidth, class T>
__device__ inline void store(const Pack<T, kWidth>& pack, T* to, bool aligned) {
  if constexpr (kWidth * sizeof(T) == 8 && kWidth > 1) {
    if (aligned) return write_half(reinterpret_cast<Pack<T, kWidth>*>(to), pack);
  } else if constexpr (kWidth > 1) {
    if (aligned) {
      const auto whole = std::bit_cast<PackParts<T, kWidth>>(pack);
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
