// SPDX-License-Identifier: MIT
// A layer: hand-written forward and backward, without a tape. A layer holds its sizes and nothing
// of a step: parameters, activations and workspace belong to the graph, so one layer object serves
// all replicas at once. To write your own, derive from Layer, pass it to GraphSpec::add, and test
// it with `check_gradient` (engine/nn/gradient_check.h).
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/nn/initial.h"
#include "engine/ops/ops.h"

namespace lockstep::engine {

// Groups let an optimizer treat parameters differently: kNorm is the scale and the shift of a
// normalization.
enum class Group : std::uint8_t { kWeight, kBias, kNorm };

struct ParameterSpec {
  std::string name;  // within the layer: "weight"
  Shape shape;
  Initial initial;
  Group group = Group::kWeight;
  // True for a table [rows, columns] of which a batch reads only the rows that Layer::row_source
  // names.
  bool sparse = false;
};

// Describes a sum over all replicas inside forward or backward: named, of fixed size, known before
// step 1.
struct ReductionSpec {
  std::string name;
  std::size_t count = 0;  // float64 numbers
};

// Describes what a layer learns besides its parameters, without gradients: moving averages.
// float64, in every type of graph. Each replica follows its own; a reader (an evaluation, a
// checkpoint) first replaces all of them by the mean over the replicas. Checkpoints hold them.
struct StatisticSpec {
  std::string name;  // within the layer: "mean"
  std::size_t count = 0;
  double initial = 0;
};

// Provides what a layer may use while it runs. The strategy implements the two virtual functions.
class Context {
 public:
  explicit Context(Ops& o) : ops(&o) {}
  virtual ~Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  // Returns where to write this replica's partial sums for reduction `point`, as float64.
  virtual std::byte* exchange(int point) = 0;
  // Makes them the sums over all replicas. Waits, with the strategy's deadline; throws the error
  // that stopped the replicas. If the ops queue their kernels, so is this, between earlier and
  // later ones: then read and write the sums by kernels (Ops::copy_bytes), or wait.
  virtual void reduce(int point) = 0;

  Ops* ops;
  const StepState* state = nullptr;
  bool training = true;    // dropout does nothing otherwise
  std::uint64_t seed = 0;  // the run's seed
};

// Contains the arguments of one call. Spans are in the order of the layer's inputs and parameters.
struct ForwardArguments {
  std::span<const Tensor> x;
  Tensor y;
  std::span<const Tensor> w;
  std::byte* workspace = nullptr;  // Layer::workspace bytes, kept until backward
  std::size_t rows = 0;            // rows of the workspace
  std::size_t first_row = 0;       // the slice's first row in the batch
  Slice slice = {};
  int point = 0;                      // number of the layer's first reduction
  const std::string* name = nullptr;  // the layer's name: its random stream
  // The row of w that each id picks, [rows, fields], if sparse parameters are compact
  // (GraphOptions); used instead of the ids in x. Else null.
  const std::uint32_t* places = nullptr;
  double* statistics = nullptr;  // the layer's, in their order
  // True if forward runs again in this step, for backward, from the same input. The workspace of
  // the first time is still valid. Statistics were already updated: do not update them again.
  bool again = false;
};
struct BackwardArguments {
  std::span<const Tensor> x;
  Tensor y, dy;                // dy may be overwritten
  std::span<const Tensor> dx;  // no data: not wanted; written (see `adds`)
  // All dw must be written, or added to with `accumulate`; null if the parameter is frozen.
  std::span<const Tensor> w, dw;
  std::byte* workspace = nullptr;
  std::size_t rows = 0, first_row = 0;
  Slice slice = {};
  int point = 0;
  const std::string* name = nullptr;
  bool accumulate = false;
  bool adds = false;  // dx[0] is added to (see adds_gradient)
  const std::uint32_t* places = nullptr;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual std::string describe() const = 0;  // one line, all sizes: "dense 128, bias"; hashed
  // Returns the output's shape; shapes are without rows. Throws Error(kInvalid) that says what
  // fits.
  virtual Shape output_shape(std::span<const Shape> inputs) const = 0;
  virtual std::vector<ParameterSpec> parameters(std::span<const Shape>) const { return {}; }
  // Returns which ids of its only input pick the rows of its sparse parameters.
  virtual RowSource row_source(std::span<const Shape>) const { return {}; }
  virtual std::vector<ReductionSpec> reductions(std::span<const Shape>) const { return {}; }
  virtual std::vector<StatisticSpec> statistics(std::span<const Shape>) const { return {}; }
  virtual std::size_t workspace(Ops&, std::span<const Shape>, std::size_t /*rows*/) const {
    return 0;  // bytes
  }
  // Returns what the kernels of forward and backward hold besides, if that may be much.
  virtual KernelMemory kernel_memory(const Ops&, std::span<const Shape>,
                                     std::size_t /*rows*/) const {
    return {};
  }
  // Returns the same layer with ReLU at its end, if it can do that in one pass; else null.
  virtual std::shared_ptr<const Layer> with_relu() const { return nullptr; }
  // Returns the same layer with a second input of its output's shape, added before any activation.
  // Returns null if it cannot do that in one pass.
  virtual std::shared_ptr<const Layer> with_add() const { return nullptr; }
  // Returns the same layer, which has a second input, merged with the layer that makes that input:
  // it reads the only input of `maker` instead. Its parameters, statistics and reductions are
  // followed by as many of the maker. Returns null if it cannot do that in one pass.
  virtual std::shared_ptr<const Layer> with_maker(const Layer& /*maker*/) const { return nullptr; }
  // Returns the same layer with a max pool behind it, of windows of `window` x `window` side by
  // side. Returns null if it cannot do that in one pass.
  virtual std::shared_ptr<const Layer> with_max_pool(std::size_t /*window*/) const {
    return nullptr;
  }
  // Returns the window if this layer is such a pool; else 0.
  virtual std::size_t max_pool_window() const { return 0; }
  // Returns the multiplications of forward for one example; 0: few, or unknown.
  virtual double work(std::span<const Shape>) const { return 0; }
  // Returns whether rows may go through forward and backward in slices of a batch (Slice).
  virtual bool takes_slices() const { return false; }
  // Returns whether slices may also share what it derives from its weights, so that a chain of
  // cheap layers may end with it.
  virtual bool ends_chain() const { return false; }
  // Returns whether y is x under another shape, so that forward and backward do nothing (flatten).
  virtual bool is_view() const { return false; }
  virtual bool is_relu() const { return false; }
  virtual bool is_add() const { return false; }  // a sum of two inputs
  // Returns whether forward and backward access tensors, workspace and state only by kernels of the
  // context's ops, so that the layer runs on every device. Else they may touch these themselves; in
  // a device's memory the layer is refused, or runs on copies (GraphOptions::fallback). Queued work
  // may be repeated for later steps without a call, so it must depend on nothing else that changes
  // between steps.
  virtual bool on_device() const { return false; }
  // Returns whether backward reads this operand of forward; the others need not be kept until then.
  virtual bool backward_reads_output() const { return true; }
  virtual bool backward_reads_input(std::size_t) const { return true; }
  // Returns whether backward may compute weight gradients separately (Ops::begin_apart). Its
  // arguments, except y and dx, are then kept for longer.
  virtual bool gradients_apart() const { return false; }
  // Returns whether backward, on these kernels, can add the gradient of its only input to
  // another's.
  virtual bool adds_gradient(const Ops&) const { return false; }
  virtual void forward(Context&, const ForwardArguments&) const = 0;
  // Reads `w` only before it returns, because an update may overwrite it afterwards.
  virtual void backward(Context&, const BackwardArguments&) const = 0;
};

}  // namespace lockstep::engine
