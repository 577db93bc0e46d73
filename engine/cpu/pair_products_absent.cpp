// SPDX-License-Identifier: MIT
// Stubs for compilers or processors without the instruction.
#include "engine/base/error.h"
#include "engine/cpu/pair_products.h"

namespace lockstep::engine::cpu {

bool has_pair_products() {
  return false;
}

void pack_pairs(const float*, std::uint32_t*, std::size_t, std::uint32_t*, std::size_t) {
  broken("products of pairs that this processor does not have");
}

void multiply_pairs(const std::uint32_t*, const std::uint32_t*, std::size_t, std::size_t,
                    std::size_t, float*) {
  broken("products of pairs that this processor does not have");
}

void add_pairs(const std::uint32_t*, const std::uint32_t*, std::size_t, std::size_t, std::size_t,
               bool, float*) {
  broken("products of pairs that this processor does not have");
}

}  // namespace lockstep::engine::cpu
