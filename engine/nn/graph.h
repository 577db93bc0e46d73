// SPDX-License-Identifier: MIT
// One replica's network: planned without memory for the parameters, then bound to arenas that the
// strategy owns. Plans all memory once; a step allocates nothing.
//
// Order. Parameters lie in the arenas in the order in which backward finishes their gradients, each
// aligned to 16 elements; frozen ones come last and have no gradients. So a bucket is a span of the
// arena, and ranges are announced in ascending order, each once. Between two parameters there may
// be padding of zeros, which belongs to the range before it.
//
// Threads: the replica's computing thread, after construction. Not copyable, not movable: tensors
// point into it.
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
  Shape shape;       // of what lies in the arena
  Range range;       // elements of the arena, without the padding behind it
  Group group = Group::kWeight;
  bool frozen = false;
  Initial initial;
  bool sparse = false;     // a table of which a batch reads some rows
  bool compact = false;    // and only these lie in the arena (GraphOptions)
  Shape whole = {};        // of the parameter: the table where compact, else `shape`
  std::size_t source = 0;  // where compact: which list of touched rows is its (Graph::touched)
};

// Numbers that a layer learns without gradients (StatisticSpec).
struct Statistic {
  std::string name;  // "bn1.mean"
  Range range;       // of Graph::statistic_values
  double initial = 0;
};

struct GraphOptions {
  // Forward keeps of each block of the model (GraphSpec::begin_block) nothing but its output, and
  // backward computes the block again before it needs what lies in it: less memory for about a
  // third more time, and the same bits. Error(kInvalid) for a model without blocks.
  bool recompute = false;
  // Of a sparse parameter the arenas hold, instead of the table, as many rows as a batch can touch.
  // Before forward somebody puts the values of the rows that this batch touches there:
  //
  //   graph.find_touched(state);                       // the input is in place
  //   rows = graph.touched(parameter);                 // 3, 17, 40 of the table
  //   row 0, 1, 2 of graph.weight(parameter) = rows 3, 17, 40 of the table
  //   forward, evaluate_loss, backward                 // announced as all others
  //   rows 0, 1, 2 of its gradient are those of rows 3, 17, 40; what lies behind them is zero
  //
  // `initialise` leaves such parameters zero: the start values of row r of a table are those that
  // engine/nn/initial.h draws from element r * columns on. The same bits come out as with the whole
  // table. Ids must lie in the graph's input, and gradients cannot be added up over micro-batches.
  bool compact_rows = false;
  // Where the ops' memory is not the host's: kernels of the host, of the same element type, beside
  // which layers and losses run that touch their operands themselves (Layer::on_device), on copies:
  // the same result, slower. They outlive the graph. Null: a model with such a layer is refused,
  // with Error(kInvalid).
  Ops* fallback = nullptr;
  std::string device = {};  // the name that this error has for where the ops' memory is
};

// For benchmarks and traces: called around each layer on the computing thread.
class Observer {
 public:
  enum class Pass : std::uint8_t { kForward, kBackward };
  virtual ~Observer() = default;
  // Whether the times are to be those of the layers' kernels: then the host waits for these before
  // and behind each layer. Else they are those in which a layer was queued.
  virtual bool timed() const { return true; }
  virtual void begins(const std::string& /*name*/, Pass /*pass*/) {}
  // `y`: the layer's output; in backward it may be gone already. Layers that go through a batch in
  // slices are told of once a slice, with its rows in use; what backward computes again counts as
  // backward.
  virtual void layer(const std::string& name, Pass pass, Clock::time_point begin,
                     Clock::time_point end, Tensor y) = 0;
};

// What a graph would take for activations, their gradients and workspace; and the largest tensor of
// these and of the weights.
struct GraphMemory {
  std::size_t bytes = 0;
  std::size_t kernels = 0;  // bytes that the kernels hold besides, an estimate
  std::string largest;      // "the output of conv1, 128x28x28x32", "dense1.weight, 512x784"
  std::size_t largest_bytes = 0;
};

class Graph {
 public:
  using Hook = std::function<void(Range)>;

  // `rows`: the most examples a replica may hold at once. `ops`: of the replica; must outlive this.
  // Throws Error(kIo) or Error(kMemory) where there is no memory: `memory` tells before what will
  // be needed.
  Graph(const GraphSpec& spec, Ops& ops, std::size_t rows, GraphOptions options = {});
  // What the constructor would take: plans, and takes nothing.
  static GraphMemory memory(const GraphSpec& spec, Ops& ops, std::size_t rows,
                            GraphOptions options = {});
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::size_t parameters() const;                // elements of the weight arena
  std::size_t trainable() const;                 // of these, the first so many have gradients
  const std::vector<Parameter>& layout() const;  // in arena order
  const std::vector<ReductionSpec>& reductions() const;  // named "<layer>.<name>"
  const std::vector<Statistic>& statistics() const;
  // All of them, float64, memory of the graph's own that the host may write too; at their initial
  // values to begin with. Waits for the kernels so far.
  std::span<double> statistic_values();
  std::size_t activation_bytes() const;  // activations, their gradients, workspace
  // What runs on copies: names of layers, and "the loss".
  const std::vector<std::string>& fallbacks() const;
  std::vector<std::string> layers() const;  // names of those that run, in the order of forward
  std::size_t slices() const;               // the most in which a layer takes a batch; 1: whole
  std::size_t rows() const;
  DType dtype() const;

  // Both arenas outlive the graph; gradients holds trainable() elements, and may be null where
  // backward is never called.
  void bind(std::byte* weights, std::byte* gradients);
  // Start values of all parameters, by (seed, name); zeros in the padding. Into memory of the host.
  void initialise(std::uint64_t seed, std::byte* weights) const;

  // In memory that the ops allocated.
  Tensor input() const;       // [rows, ...input]; written by the loop
  Tensor target() const;      // float32 [rows, target columns]; written by the loop
  std::int64_t* ids() const;  // [rows]; written by the loop; StepState::ids
  Tensor weight(const Parameter& parameter) const;  // once bound
  Tensor output() const;                            // [rows, ...output]
  Tensor losses() const;                            // float64 [rows]
  Tensor correct() const;  // float64 [rows]; no data where the loss counts none

  // Of a graph with compact rows (else nothing happens): finds the rows that the batch in `input`
  // touches, state.examples of it. Before forward, once a batch; allocates nothing; sorts the ids
  // of each field. Throws Error(kInvalid) as an embedding's forward does, where a number is no id.
  void find_touched(const StepState& state);
  // Of a compact parameter of this layout (else empty): the rows of the table, ascending, each
  // once; row k of its part of the arenas is row touched[k]. Until the next find_touched.
  std::span<const std::uint64_t> touched(const Parameter& parameter) const;

  // `before(range)` is called before the weights of a layer are read, for each layer that has any,
  // frozen ones left out; ranges cover [0, trainable()) in descending order.
  void forward(Context& context, const Hook& before);
  // Losses and correct of the rows in use; with `gradient`, what backward starts from.
  void evaluate_loss(Context& context, bool gradient);
  // `ready(range)` gets ascending ranges that cover [0, trainable()), each once: gradients that are
  // final, and whose weights are not read again in this step. With `accumulate` gradients are added
  // to what is there.
  void backward(Context& context, bool accumulate, const Hook& ready);

  void observe(Observer* observer);  // null: nobody
  ~Graph();

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace lockstep::engine
