// SPDX-License-Identifier: MIT
// A layer: hand-written forward and backward, no tape. A layer holds its sizes and nothing of a
// step: parameters, activations and workspace belong to the graph, so one layer object serves all
// replicas at once. To write your own, derive from Layer, give it to GraphSpec::add, and hold it
// against `check_gradient` (engine/nn/gradient_check.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/initial.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

// Groups exist so that an optimizer may treat them differently: kNorm is the scale and the shift of
// a normalisation.
enum class Group : std::uint8_t { kWeight, kBias, kNorm };

struct ParameterSpec {
  std::string name;  // within the layer: "weight"
  Shape shape;
  Initial initial;
  Group group = Group::kWeight;
  // A table [rows, columns] of which a batch reads only the rows that Layer::row_source says.
  bool sparse = false;
};

// A sum over all replicas inside forward or backward: named, of fixed size, known before step 1.
struct ReductionSpec {
  std::string name;
  std::size_t count = 0;  // float64 numbers
};

// What a layer learns beside its parameters, without gradients: moving averages. float64, in every
// type of graph; each replica follows its own, and whoever reads them (an evaluation, a checkpoint)
// makes all of them the mean over the replicas first. Checkpoints hold them.
struct StatisticSpec {
  std::string name;  // within the layer: "mean"
  std::size_t count = 0;
  double initial = 0;
};

// What a layer may use while it runs. The strategy implements the two virtual functions.
class Context {
 public:
  explicit Context(Ops& o) : ops(&o) {}
  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // Write this replica's partial sums for reduction `point` here, as float64, ...
  virtual std::byte* exchange(int point) = 0;
  // ... and after this they are the sums over all replicas. Waits, with the strategy's deadline;
  // throws what stopped the team. Where the ops queue their kernels so is this, between those
  // before and those after: then read and write what lies there by kernels (Ops::copy_bytes), or
  // wait.
  virtual void reduce(int point) = 0;

  Ops* ops;
  const StepState* state = nullptr;
  bool training = true;    // dropout does nothing otherwise
  std::uint64_t seed = 0;  // of the run
};

// Everything a layer sees in one call. Spans are in the order of the layer's inputs and parameters.
struct ForwardArguments {
  std::span<const Tensor> x;
  Tensor y;
  std::span<const Tensor> w;
  std::byte* workspace = nullptr;  // Layer::workspace bytes, kept until backward
  std::size_t rows = 0;            // that the workspace was made for
  std::size_t first_row = 0;       // of x and y, where a batch goes through in slices
  Slice slice = {};
  int point = 0;                      // number of the layer's first reduction
  const std::string* name = nullptr;  // of the layer in its graph: the stream of its random numbers
  // Where sparse parameters are compact (GraphOptions): the row of w that each id picks, [rows,
  // fields], instead of what the ids in x would say; else null.
  const std::uint32_t* places = nullptr;
  double* statistics = nullptr;  // of the layer, in their order
  // Computed once more in this step, for backward, from the same input: what the workspace keeps of
  // the first time still holds, and statistics have been followed.
  bool again = false;
};
struct BackwardArguments {
  std::span<const Tensor> x;
  Tensor y, dy;                   // dy may be overwritten
  std::span<const Tensor> dx;     // data == nullptr where nobody wants it; written (see `adds`)
  std::span<const Tensor> w, dw;  // all dw must be written, or added to where `accumulate`;
                                  // null where the parameter is frozen
  std::byte* workspace = nullptr;
  std::size_t rows = 0, first_row = 0;
  Slice slice = {};
  int point = 0;
  const std::string* name = nullptr;
  bool accumulate = false;
  bool adds = false;  // dx[0] is added to what is there: of layers alone that can (adds_gradient)
  const std::uint32_t* places = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string describe() const = 0;  // one line with all sizes: "dense 128, bias"; hashed
  // Shapes are without rows. Throws Error(kInvalid) saying what fits.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape>) const { return {}; }
  // Of its only input: the ids that say which rows of its sparse parameters are read.
  virtual RowSource row_source(std::span<const Shape>) const { return {}; }
  virtual std::vector<ReductionSpec> reductions(std::span<const Shape>) const { return {}; }
  virtual std::vector<StatisticSpec> statistics(std::span<const Shape>) const { return {}; }
  virtual std::size_t workspace(Ops&, std::span<const Shape>, std::size_t /*rows*/) const {
    return 0;  // bytes
  }
  // What the kernels of forward and backward hold besides, where that may be much.
  virtual KernelMemory kernel_memory(const Ops&, std::span<const Shape>,
                                     std::size_t /*rows*/) const {
    return {};
  }
  // The same layer with ReLU at its end, where it can do that in one pass; else null.
  virtual std::shared_ptr<const Layer> with_relu() const { return nullptr; }
  // The same layer with a second input of the shape of its output, which is added before any
  // activation, where it can do that in one pass; else null.
  virtual std::shared_ptr<const Layer> with_add() const { return nullptr; }
  // The same layer, which has a second input, merged with the layer that makes that input: it reads
  // the only input of `maker` instead. Its parameters, statistics and reductions are followed by as
  // many of the maker. Null where it cannot do that in one pass.
  virtual std::shared_ptr<const Layer> with_maker(const Layer& /*maker*/) const { return nullptr; }
  // The same layer with a max pool behind it, of windows of `window` x `window` side by side, where
  // it can do that in one pass; else null.
  virtual std::shared_ptr<const Layer> with_max_pool(std::size_t /*window*/) const {
    return nullptr;
  }
  // The window of such a pool, where this layer is one; else 0.
  virtual std::size_t max_pool_window() const { return 0; }
  // Multiplications of forward for one example; 0: few, or not known.
  virtual double work(std::span<const Shape>) const { return 0; }
  // True: rows may go through forward and backward in slices of a batch (Slice).
  virtual bool takes_slices() const { return false; }
  // True: and what it derives from its weights is kept from slice to slice, so that a chain of
  // cheap layers may end with it.
  virtual bool ends_chain() const { return false; }
  // True: y is x under another shape, forward and backward do nothing (flatten).
  virtual bool is_view() const { return false; }
  virtual bool is_relu() const { return false; }
  virtual bool is_add() const { return false; }  // of two inputs
  // True: forward and backward leave all that tensors, workspace and state name to kernels of the
  // context's ops, so the layer runs on every device. False: they may touch it themselves; where it
  // lies in a device's memory they are refused, or run on copies (GraphOptions::fallback). What
  // they queue may be done again for later steps without a call, so it depends on nothing else
  // that changes from step to step.
  virtual bool on_device() const { return false; }
  // What backward reads of forward's operands: the others need not be kept until then.
  virtual bool backward_reads_output() const { return true; }
  virtual bool backward_reads_input(std::size_t) const { return true; }
  // Whether backward may make gradients of weights apart (Ops::begin_apart). Then what it is given,
  // but for y and dx, is kept for longer.
  virtual bool gradients_apart() const { return false; }
  // Whether backward, on these kernels, can add the gradient of its only input to another's.
  virtual bool adds_gradient(const Ops&) const { return false; }
  virtual void forward(Context&, const ForwardArguments&) const = 0;
  // Reads `w` only before it returns: after that an update may overwrite it.
  virtual void backward(Context&, const BackwardArguments&) const = 0;
};

}  // namespace lockstep::engine
