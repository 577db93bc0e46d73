// SPDX-License-Identifier: MIT
// The network of one replica. It is planned without memory for the parameters, then bound to arenas
// that the strategy owns. All memory is planned once; a step allocates nothing.
//
// Order: parameters lie in the arenas in the order in which backward finishes their gradients, each
// aligned to 16 elements. Frozen ones come last and have no gradients. A bucket is therefore a span
// of the arena, and ranges are announced in ascending order, each once. Zero padding between two
// parameters belongs to the range before it.
//
// Threads: the replica's computing thread, after construction. Not copyable and not movable,
// because tensors point into it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/device/buffer.h"
#include "engine/nn/graph_spec.h"

namespace lockstep::engine {

struct Parameter {
  std::string name;  // "conv1.weight"
  Shape shape;       // shape in the arena
  Range range;       // elements of the arena, without padding
  Group group = Group::kWeight;
  bool frozen = false;
  Initial initial;
  bool sparse = false;     // a batch reads only some rows
  bool compact = false;    // the arena holds only these (GraphOptions)
  Shape whole = {};        // shape of the table if compact, else `shape`
  std::size_t source = 0;  // if compact: its list in Graph::touched
};

// Describes numbers that a layer learns without gradients (StatisticSpec).
struct Statistic {
  std::string name;  // "bn1.mean"
  Range range;       // in Graph::statistic_values
  double initial = 0;
};

struct GraphOptions {
  // Forward keeps only the output of each block of the model (GraphSpec::begin_block), and backward
  // computes the block again before it needs the inner values. This saves memory, costs about a
  // third more time, and gives the same bits. Throws Error(kInvalid) for a model without blocks.
  bool recompute = false;
  // Instead of the table of a sparse parameter, the arenas hold as many rows as a batch can touch.
  // Before forward the caller writes the values of the rows that this batch touches there:
  //
  //   graph.find_touched(state);                       // the input is in place
  //   rows = graph.touched(parameter);                 // 3, 17, 40 of the table
  //   row 0, 1, 2 of graph.weight(parameter) = rows 3, 17, 40 of the table
  //   forward, evaluate_loss, backward                 // announced as all others
  //   rows 0, 1, 2 of its gradient are those of rows 3, 17, 40; the rest is zero
  //
  // `initialise` leaves such parameters zero: the start values of row r of a table are those that
  // engine/nn/initial.h draws from element r * columns on. The results have the same bits as with
  // the whole table. Ids must be in the graph's input, and gradients cannot be summed over
  // micro-batches.
  bool compact_rows = false;
  // The host's kernels, of the same element type, for ops whose memory is not the host's. Layers
  // and losses that touch their operands themselves (Layer::on_device) run on copies with them: the
  // same result, slower. They must outlive the graph. Null: a model with such a layer is refused
  // with Error(kInvalid).
  Ops* fallback = nullptr;
  std::string device = {};  // the device's name in this error
};

// Is called around each layer on the computing thread, for benchmarks and traces.
class Observer {
 public:
  enum class Pass : std::uint8_t { kForward, kBackward };
  virtual ~Observer() = default;
  // Returns whether times are those of the layers' kernels: then the host waits for the kernels
  // before and after each layer. Else they are the times of queuing a layer.
  virtual bool timed() const { return true; }
  virtual void begins(const std::string& /*name*/, Pass /*pass*/) {}
  // Reports a layer. `y`: its output; in backward it may be gone already. Layers that process a
  // batch in slices are reported once per slice, with its rows in use. What backward computes again
  // counts as backward.
  virtual void layer(const std::string& name, Pass pass, Clock::time_point begin,
                     Clock::time_point end, Tensor y) = 0;
};

// Describes the memory that a graph would take for activations, their gradients and workspace, and
// the largest tensor of these and of the weights.
struct GraphMemory {
  std::size_t bytes = 0;
  std::size_t kernels = 0;  // estimated further bytes of the kernels
  std::string largest;      // "the output of conv1, 128x28x28x32", "dense1.weight, 512x784"
  std::size_t largest_bytes = 0;
};

class Graph {
 public:
  using Hook = std::function<void(Range)>;

  // `rows` is the most examples that a replica may hold at once. `ops`: those of the replica; must
  // outlive this. Throws Error(kIo) or Error(kMemory) if there is not enough memory; `memory` tells
  // before what is needed.
  Graph(const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options = {});
  // Returns what the constructor would take, without taking it.
  static GraphMemory memory(const GraphSpec& spec, Ops& ops, std::size_t rows,
                            GraphOptions options = {});
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::size_t parameters() const;                        // elements of the weight arena
  std::size_t trainable() const;                         // of these, the first that have gradients
  const std::vector<Parameter>& layout() const;          // in arena order
  const std::vector<ReductionSpec>& reductions() const;  // named "<layer>.<name>"
  const std::vector<Statistic>& statistics() const;
  // Returns all statistics, float64, in memory of the graph that the host may write, too. They
  // start at their initial values. Waits for the kernels so far.
  std::span<double> statistic_values();
  std::size_t activation_bytes() const;  // activations, their gradients, workspace
  // Returns what runs on copies: names of layers, and "the loss".
  const std::vector<std::string>& fallbacks() const;
  std::vector<std::string> layers() const;  // names of running layers, in forward order
  std::size_t slices() const;               // most slices per batch; 1: whole batch
  std::size_t rows() const;
  DType dtype() const;

  // Binds both arenas, which must outlive the graph. `gradients` holds trainable() elements, and
  // may be null if backward is never called.
  void bind(std::byte* weights, std::byte* gradients);
  // Writes start values of all parameters, by (seed, name), and zeros in the padding, to host
  // memory.
  void initialise(std::uint64_t seed, std::byte* weights) const;

  // These are in memory that the ops allocated.
  Tensor input() const;       // [rows, ...input]; written by the loop
  Tensor target() const;      // float32 [rows, target columns]; written by the loop
  std::int64_t* ids() const;  // [rows]; written by the loop; StepState::ids
  Tensor weight(const Parameter& parameter) const;  // once bound
  Tensor output() const;                            // [rows, ...output]
  Tensor losses() const;                            // float64 [rows]
  Tensor correct() const;                           // float64 [rows]; no data if not counted

  // Finds the rows that the batch in `input`, of state.examples, touches. Without compact rows it
  // does nothing. Call it before forward, once per batch. Allocates nothing; sorts the ids of each
  // field. Throws Error(kInvalid) for an invalid id, as an embedding's forward does.
  void find_touched(const StepState& state);
  // Returns the touched rows of the table of a compact parameter of this layout (else nothing),
  // ascending, each once. Row k of its part of the arenas is row touched[k]. Valid until the next
  // find_touched.
  std::span<const std::uint64_t> touched(const Parameter& parameter) const;

  // Runs forward. Calls `before(range)` before it reads the weights of a layer, for each layer with
  // trainable ones; the ranges cover [0, trainable()) in descending order.
  void forward(Context& context, const Hook& before);
  // Computes losses and correct of the rows in use; with `gradient`, also the start of backward.
  void evaluate_loss(Context& context, bool gradient);
  // Runs backward. Calls `ready(range)` with ascending ranges that cover [0, trainable()), each
  // once. Their gradients are final, and their weights are not read again in this step. With
  // `accumulate`, gradients are added to the existing ones.
  void backward(Context& context, bool accumulate, const Hook& ready);

  void observe(Observer* observer);  // null removes it
  ~Graph();

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace lockstep::engine
