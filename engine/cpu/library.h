// SPDX-License-Identifier: MIT
// The oneDNN state that one replica's kernels share: engine, stream, number of threads, and scratch
// memory for running primitives. The scratch grows when a primitive is made, never in a steady
// step. Used on the replica's computing thread only.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/buffer.h"

namespace lockstep::engine::cpu {

class Library {
 public:
  explicit Library(int threads);

  // Sets OpenMP's number of threads for the calling thread. The setting belongs to a thread, so
  // each kernel calls this.
  void enter() const;
  int threads() const { return threads_; }
  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }

  // Returns at least `bytes` bytes, aligned to 64. The contents are lost when the scratch grows.
  std::byte* scratch(std::size_t bytes);
  // Returns room for widened operands, with the same limits. It is kept while a primitive runs.
  float* widened(std::size_t floats);
  std::size_t held() const { return scratch_.bytes() + widened_.bytes(); }

  void made(std::string_view what, const char* implementation);
  std::span<const std::string> names() const { return names_; }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Buffer scratch_, widened_;
  std::vector<std::string> names_;
};

// Returns whether oneDNN uses AVX-512. Without it, it has no kernels of bfloat16.
bool has_avx512();

// Returns the library's name of an element type.
template <class T>
constexpr dnnl::memory::data_type data_type() {
  return std::is_same_v<T, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// Calls `body` and converts an error of oneDNN to Error(kDevice).
template <class Body>
decltype(auto) guarded(std::string_view what, Body body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    fail(Code::kDevice, "cpu:0, {}: oneDNN says: {}", what, error.what());
  }
}

// Holds a primitive, made once per shape, and its operands, whose addresses are set before each
// run.
class Call {
 public:
  Call() = default;
  Call(Library& library, dnnl::primitive primitive,
       std::initializer_list<std::pair<int, dnnl::memory::desc>> operands);
  explicit operator bool() const { return bool(primitive_); }
  void set(int operand, const void* data);
  void run(Library& library);
  dnnl::memory::desc desc(int operand) const { return operands_.at(operand).get_desc(); }

 private:
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> operands_;
};

// Copies from one layout to another.
class Reorder {
 public:
  Reorder() = default;
  Reorder(Library& library, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  void run(Library& library, const void* from, void* to);

 private:
  Call call_;
};

// Returns a number of floats rounded up to whole cache lines.
constexpr std::size_t whole_lines(std::size_t floats) {
  return (floats + 15) / 16 * 16;
}

// Places parts one after the other in scratch memory.
class ScratchLayout {
 public:
  std::size_t place(std::size_t bytes) {
    const std::size_t at = end_;
    end_ += (bytes + 63) / 64 * 64;
    return at;
  }
  std::size_t bytes() const { return end_; }

 private:
  std::size_t end_ = 0;
};

}  // namespace lockstep::engine::cpu
