// SPDX-License-Identifier: MIT
#include "engine/cpu/dense.h"

#include <algorithm>
#include <memory>
#include <type_traits>

#include "engine/cpu/bfloat16_loops.h"
#include "engine/cpu/loops.h"
#include "engine/cpu/share_rows.h"

namespace lockstep::engine::cpu {
namespace {

using dnnl::memory;
using Dim = memory::dim;

constexpr std::size_t kFewRows = 24;
constexpr std::size_t kWideWeights = std::size_t{4} << 20;

// Describes a row-major matrix, or the transpose of one.
memory::desc matrix(memory::data_type type, std::size_t rows, std::size_t columns,
                    bool turned = false) {
  const memory::dims strides = turned ? memory::dims{1, Dim(rows)} : memory::dims{Dim(columns), 1};
  return {{Dim(rows), Dim(columns)}, type, strides};
}

// Describes what follows the sum of the products.
struct Ending {
  bool bias = false, add = false;  // add: to the output
};

// Returns the floats of the widened operands of a product: matrices and bias.
std::size_t floats_of_product(std::size_t rows, std::size_t depth, std::size_t columns) {
  return whole_lines(rows * depth) + whole_lines(depth * columns) + whole_lines(rows * columns) +
         columns;
}

// Returns the scratch of the own kernel in floats.
std::size_t product_floats(const Product& product, int threads) {
  return whole_lines(product.packed()) + std::size_t(threads) * Product::panel();
}

}  // namespace

// Computes c = a b. The primitive is made at the first call and kept.
class LibraryProduct {
 public:
  LibraryProduct(std::string name, const memory::desc& a, const memory::desc& b,
                 const memory::desc& c, Ending ending)
      : name_(std::move(name)), a_(a), b_(b), c_(c), ending_(ending) {}

  void run(Library& library, const void* a, const void* b, const void* bias, void* c) {
    if (!call_) make(library);
    call_.set(DNNL_ARG_SRC, a);
    call_.set(DNNL_ARG_WEIGHTS, b);
    call_.set(DNNL_ARG_BIAS, bias);
    call_.set(DNNL_ARG_DST, c);
    call_.set(DNNL_ARG_SCRATCHPAD, library.scratch(scratch_));
    call_.run(library);
  }
  std::size_t rows() const { return std::size_t(a_.dims()[0]); }
  std::size_t depth() const { return std::size_t(a_.dims()[1]); }
  std::size_t columns() const { return std::size_t(b_.dims()[1]); }
  bool adds() const { return ending_.add; }

 private:
  void make(Library& library) {
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    dnnl::post_ops after;
    if (ending_.add) after.append_sum(1);
    attributes.set_post_ops(after);
    const memory::desc bias =
        ending_.bias ? matrix(c_.data_type(), 1, std::size_t(c_.dims()[1])) : memory::desc();
    const dnnl::matmul::primitive_desc plan(
        ending_.bias ? dnnl::matmul::desc(a_, b_, bias, c_) : dnnl::matmul::desc(a_, b_, c_),
        attributes, library.engine());
    library.made(name_, plan.impl_info_str());
    scratch_ = plan.scratchpad_desc().get_size();
    call_ = Call(library, dnnl::matmul(plan),
                 {{DNNL_ARG_SRC, a_},
                  {DNNL_ARG_WEIGHTS, b_},
                  {DNNL_ARG_BIAS, bias},
                  {DNNL_ARG_DST, c_},
                  {DNNL_ARG_SCRATCHPAD, plan.scratchpad_desc()}});
  }

  std::string name_;
  memory::desc a_, b_, c_;
  Ending ending_;
  std::size_t scratch_ = 0;
  Call call_;
};

// Holds the products y = x w', dx = dy w and dw = dy' x.
struct DenseCalls {
  LibraryProduct forward, of_inputs, of_weights, more_of_weights;
  DenseCalls(const DenseSpec& s, std::size_t rows, memory::data_type t, const std::string& name)
      : forward(name + " forward", matrix(t, rows, s.inputs), matrix(t, s.inputs, s.outputs, true),
                matrix(t, rows, s.outputs), {.bias = s.bias}),
        of_inputs("gradient of the input of " + name, matrix(t, rows, s.outputs),
                  matrix(t, s.outputs, s.inputs), matrix(t, rows, s.inputs), {}),
        of_weights("gradient of the weights of " + name, matrix(t, s.outputs, rows, true),
                   matrix(t, rows, s.inputs), matrix(t, s.outputs, s.inputs), {}),
        more_of_weights("gradient of the weights, added, of " + name,
                        matrix(t, s.outputs, rows, true), matrix(t, rows, s.inputs),
                        matrix(t, s.outputs, s.inputs), {.add = true}) {}
};

template <class T>
DenseLayers<T>::DenseLayers(Library& library, Kernels kernels)
    : library_(library), kernels_(kernels), widens_(!std::is_same_v<T, float> && !has_avx512()) {}
template <class T>
DenseLayers<T>::~DenseLayers() = default;

template <class T>
DenseCalls& DenseLayers<T>::calls(const DenseSpec& s, std::size_t rows) {
  return calls_.find(s, rows, [&] {
    return std::make_unique<DenseCalls>(s, rows, widens_ ? data_type<float>() : data_type<T>(),
                                        fmt::format("dense {} to {}", s.inputs, s.outputs));
  });
}

// Returns whether to use the own kernel. It packs dy and reads x or w once. That pays if a batch
// has enough rows to amortize packing and if the data that it touches once do not stay in the
// caches.
template <class T>
bool DenseLayers<T>::own(const DenseSpec& s, std::size_t planned) const {
  return std::is_same_v<T, float> && kernels_ != Kernels::kDirect && planned >= kFewRows &&
         s.inputs * s.outputs >= kWideWeights;
}

template <class T>
KernelMemory DenseLayers<T>::memory(const DenseSpec& s, std::size_t planned) const {
  if (widens_) {
    const std::size_t forward = floats_of_product(planned, s.inputs, s.outputs);
    const std::size_t of_inputs = floats_of_product(planned, s.outputs, s.inputs);
    const std::size_t of_weights = floats_of_product(s.outputs, planned, s.inputs);
    return {.between = std::max({forward, of_inputs, of_weights}) * sizeof(float)};
  }
  if (!own(s, planned)) return {};
  const Product of_inputs{.rows = planned, .depth = s.outputs}, of_weights{s.outputs, planned};
  const std::size_t floats = std::max(product_floats(of_inputs, library_.threads()),
                                      product_floats(of_weights, library_.threads()));
  return {.scratch = floats * sizeof(float)};
}

// Multiplies by the own kernel: all threads pack a, then each computes its own columns.
template <class T>
void DenseLayers<T>::multiply(const Product& product) {
  const int threads = library_.threads();
  const std::size_t floats = product_floats(product, threads);
  auto* const packed = reinterpret_cast<float*>(library_.scratch(floats * sizeof(float)));
  float* const panels = packed + floats - std::size_t(threads) * Product::panel();
  share_rows(threads, product.strips(), [&](int, std::size_t first, std::size_t count) {
    pack(product, first, count, packed);
  });
  share_rows(threads, product.groups(), [&](int thread, std::size_t first, std::size_t count) {
    cpu::multiply(product, packed, first, count, panels + std::size_t(thread) * Product::panel());
  });
}

// Runs a product of the library. If that has none of T, it gets widened operands, and the result is
// rounded once.
template <class T>
void DenseLayers<T>::run(LibraryProduct& product, const T* a, const T* b, const T* bias, T* c) {
  if constexpr (!std::is_same_v<T, float>) {
    if (widens_) {
      const std::size_t rows = product.rows(), depth = product.depth(), columns = product.columns();
      float* const a32 = library_.widened(floats_of_product(rows, depth, columns));
      float* const b32 = a32 + whole_lines(rows * depth);
      float* const c32 = b32 + whole_lines(depth * columns);
      float* const bias32 = c32 + whole_lines(rows * columns);
      widen(a, a32, rows * depth);
      widen(b, b32, depth * columns);
      if (product.adds()) widen(c, c32, rows * columns);
      if (bias != nullptr) widen(bias, bias32, columns);
      product.run(library_, a32, b32, bias == nullptr ? nullptr : bias32, c32);
      return narrow(c32, c, rows * columns);
    }
  }
  product.run(library_, a, b, bias, c);
}

template <class T>
void DenseLayers<T>::forward(const DenseSpec& s, std::size_t rows, const T* x, const T* w,
                             const T* b, T* y) {
  if (rows == 0) return;
  run(calls(s, rows).forward, x, w, b, y);
  if (s.activation == Activation::kRelu) relu(y, y, rows * s.outputs);
}

template <class T>
void DenseLayers<T>::backward(const DenseSpec& s, Rows batch, const T* x, const T* y, T* dy,
                              const T* w, T* dx, T* dw, T* db, bool accumulate) {
  const std::size_t rows = batch.used;
  if (rows == 0) {
    if (dw != nullptr && !accumulate) std::fill_n(dw, s.outputs * s.inputs, T());
    if (db != nullptr && !accumulate) std::fill_n(db, s.outputs, T());
    return;
  }
  if (s.activation == Activation::kRelu) mask(y, dy, dy, rows * s.outputs);
  if (s.bias && db != nullptr) column_sums(dy, rows, s.outputs, db, accumulate);
  if constexpr (std::is_same_v<T, float>) {
    if (own(s, batch.planned)) {
      if (dw != nullptr) multiply({s.outputs, rows, s.inputs, dy, true, x, dw, accumulate});
      if (dx != nullptr) multiply({rows, s.outputs, s.inputs, dy, false, w, dx, false});
      return;
    }
  }
  DenseCalls& products = calls(s, rows);
  if (dw != nullptr)
    run(accumulate ? products.more_of_weights : products.of_weights, dy, x, nullptr, dw);
  if (dx != nullptr) run(products.of_inputs, dy, w, nullptr, dx);
}

template class DenseLayers<float>;
template class DenseLayers<BFloat16>;

}  // namespace lockstep::engine::cpu
