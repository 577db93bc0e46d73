// SPDX-License-Identifier: MIT
#include "engine/cpu/library.h"

#include <omp.h>

#include <algorithm>
#include <utility>

namespace lockstep::engine::cpu {

Library::Library(int threads)
    : threads_(threads), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
  require(threads >= 1, "cpu:0 cannot compute with {} threads; 1 is the least", threads);
}

void Library::enter() const {
  omp_set_num_threads(threads_);
}

std::byte* Library::scratch(std::size_t bytes) {
  if (bytes > scratch_.bytes()) scratch_ = Buffer(bytes);
  return scratch_.data();
}

float* Library::widened(std::size_t floats) {
  const std::size_t bytes = floats * sizeof(float);
  if (bytes > widened_.bytes()) widened_ = Buffer(bytes);
  return reinterpret_cast<float*>(widened_.data());
}

void Library::made(std::string_view what, const char* implementation) {
  std::string text = fmt::format("{}: {}", what, implementation);
  if (std::find(names_.begin(), names_.end(), text) == names_.end()) {
    names_.push_back(std::move(text));
  }
}

bool has_avx512() {
  constexpr auto kNeeded = unsigned(dnnl::cpu_isa::avx512_core);
  return (unsigned(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

Call::Call(Library& library, dnnl::primitive primitive,
           std::initializer_list<std::pair<int, dnnl::memory::desc>> operands)
    : primitive_(std::move(primitive)) {
  for (const auto& [operand, desc] : operands) {
    if (desc.is_zero()) continue;
    operands_.emplace(operand, dnnl::memory(desc, library.engine(), DNNL_MEMORY_NONE));
  }
}

void Call::set(int operand, const void* data) {
  const auto found = operands_.find(operand);
  // The library's handles are not const, but a primitive writes only to its outputs.
  if (found != operands_.end()) found->second.set_data_handle(const_cast<void*>(data));
}

void Call::run(Library& library) {
  primitive_.execute(library.stream(), operands_);
}

Reorder::Reorder(Library& library, const dnnl::memory::desc& from, const dnnl::memory::desc& to) {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::library);
  const dnnl::reorder::primitive_desc plan(library.engine(), from, library.engine(), to,
                                           attributes);
  call_ = Call(library, dnnl::reorder(plan), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

void Reorder::run(Library& library, const void* from, void* to) {
  call_.set(DNNL_ARG_FROM, from);
  call_.set(DNNL_ARG_TO, to);
  call_.run(library);
}

}  // namespace lockstep::engine::cpu
