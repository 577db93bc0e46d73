// SPDX-License-Identifier: MIT
// What one replica's kernels share of oneDNN: engine, stream, number of threads, and the memory
// that a primitive needs while it runs. That memory grows when a primitive is made, never in a
// steady step. The replica's computing thread only.
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

  // Says to OpenMP how many threads the calling thread may use from now on: the setting belongs to
  // a thread, so each kernel says it again.
  void enter() const;
  int threads() const { return threads_; }
  const dnnl::engine& engine() const { return engine_; }
  dnnl::stream& stream() { return stream_; }

  // At least so many bytes, aligned to 64; what it held is lost when it grows.
  std::byte* scratch(std::size_t bytes);
  std::size_t held() const { return scratch_.bytes(); }

  void made(std::string_view what, const char* implementation);
  std::span<const std::string> names() const { return names_; }

 private:
  int threads_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Buffer scratch_;
  std::vector<std::string> names_;
};

// The library's name for an element type.
template <class T>
constexpr dnnl::memory::data_type data_type() {
  return std::is_same_v<T, float> ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// Calls `body`; an error of oneDNN becomes Error(kDevice).
template <class Body>
decltype(auto) guarded(std::string_view what, Body body) {
  try {
    return body();
  } catch (const dnnl::error& error) {
    fail(Code::kDevice, "cpu:0, {}: oneDNN says: {}", what, error.what());
  }
}

// A primitive with its operands, whose addresses are set before each run. Made once for a shape.
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

// A copy from one layout to another; knows when both are the same.
class Reorder {
 public:
  Reorder() = default;
  Reorder(Library& library, const dnnl::memory::desc& from, const dnnl::memory::desc& to);
  void run(Library& library, const void* from, void* to);

 private:
  Call call_;
};

// A number of floats, rounded up to whole lines of a cache.
constexpr std::size_t whole_lines(std::size_t floats) {
  return (floats + 15) / 16 * 16;
}

// Sizes in scratch memory, laid behind each other.
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
