// SPDX-License-Identifier: MIT
// The kernels that each device must give, for one replica and one element type. Tensors of a batch
// have the planned number of rows; the first `state->examples` count, the others are neither read
// nor need to be written (0 is an ordinary case: then gradients of weights are zero). Activations
// are NHWC. Convolution weights are [filters, kernel_height, kernel_width, channels]; dense weights
// are [outputs, inputs]. All extents of one call were known when the graph was planned; what a
// kernel needs besides (scratch, library objects) it makes at the first call of a shape and keeps.
//
// A device may queue kernels and run them later, in the order of the calls. Then its memory is not
// the host's: what `allocate` gave is read and written by `read` and `write` alone, and the words
// of a step are those that `publish` gave. What a kernel finds wrong in ids and labels is thrown by
// it, or by the next call that waits for it: `read`, `synchronize`, `batch_sum`.
//
// Threads: the replica's computing thread only, except `reduce` and `checksum`, which any thread
// may call at any time. Cost: one pass over the operands unless said. Errors: Error(kDevice) from a
// library; wrong shapes are broken invariants.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "engine/device/buffer.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/recorder.h"
#include "engine/ops/reduce.h"
#include "engine/ops/step_state.h"
#include "engine/tensor/tensor.h"

namespace lockstep::engine {

// y = activation(x w' + b).
struct DenseSpec {
  std::size_t inputs = 0, outputs = 0;
  bool bias = true;
  Activation activation = Activation::kNone;
  bool operator==(const DenseSpec&) const = default;
};

// y = activation(x * w + b), cross-correlation; `padding` zeros on both sides of an axis.
struct ConvolutionSpec {
  std::size_t height = 0, width = 0, channels = 0;  // of the input
  std::size_t filters = 0;
  std::size_t kernel_height = 1, kernel_width = 1;
  std::size_t stride = 1, padding = 0;
  bool bias = true;
  Activation activation = Activation::kNone;
  bool adds = false;  // backward: dx is added to what is there; where Ops::adds_gradients says so
  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  // Elements of a row of x and of y, and of w.
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const { return output_height() * output_width() * filters; }
  std::size_t weights() const { return filters * kernel_height * kernel_width * channels; }
  bool operator==(const ConvolutionSpec&) const = default;
};

enum class PoolKind : std::uint8_t { kMax, kAverage };  // the average leaves padding out

struct PoolSpec {
  PoolKind kind = PoolKind::kMax;
  std::size_t height = 0, width = 0, channels = 0;  // of the input
  std::size_t kernel_height = 2, kernel_width = 2;
  std::size_t stride = 2, padding = 0;
  // A max pool of a ReLU's outputs: backward gives the gradient of the ReLU's inputs, which windows
  // without a positive value do not have; where Ops::pools_relu says so.
  bool relu = false;
  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::size_t inputs() const { return height * width * channels; }  // elements of a row
  std::size_t outputs() const { return output_height() * output_width() * channels; }
  bool operator==(const PoolSpec&) const = default;
};

// A convolution, its activation, and a max pool of windows side by side (the stride is the window's
// size, no padding), in one. Windows that do not fit at the lower and right edge are left out.
struct PooledConvolutionSpec {
  ConvolutionSpec convolution;
  std::size_t window = 2;
  PoolSpec pool() const {
    return {PoolKind::kMax,
            convolution.output_height(),
            convolution.output_width(),
            convolution.filters,
            window,
            window,
            window,
            0};
  }
  bool operator==(const PooledConvolutionSpec&) const = default;
};

// A batch may go through some kernels in slices of rows, so that what lies between two layers stays
// in the cache. All slices of a pass see the same weights; what is derived from them is made in the
// first, and the gradient of the weights is whole after the last.
struct Slice {
  bool first = true, last = true;
};

// The workspace of a pooled convolution for `rows`, and which of them a call is about.
struct PooledConvolutionMemory {
  std::byte* workspace = nullptr;
  std::size_t rows = 0;   // that it was made for
  std::size_t first = 0;  // the call's first row
  Slice slice = {};
};

// Which numbers a dropout layer draws: unit j of example e (its id) at step t is kept when
// uniform(random_bits(key, e, (t << 32) | (j / 4))[j % 4]) >= rate; engine/ops/definitions.h has it
// for all devices. So masks do not depend on how replicas share a batch, and backward calls the
// same kernel with dy.
struct DropoutSpec {
  double rate = 0.5;      // of units that are dropped; the others are multiplied by 1 / (1 - rate)
  std::uint64_t key = 0;  // engine/base/random.h: stream_key(seed, layer name)
  bool operator==(const DropoutSpec&) const = default;
};

// Which rows of a table a batch picks: columns [first, first + fields) of it hold ids, whole
// numbers of 0 .. rows - 1; id i of field f picks row f * rows + i, so each field has rows of its
// own.
struct RowSource {
  static constexpr std::size_t kMostRows = std::size_t(1) << 24;  // float32 counts so far
  std::size_t first = 0;
  std::size_t fields = 0;  // 0: nothing is picked
  std::size_t rows = 0;    // of each field
  bool operator==(const RowSource&) const = default;
};

// y is the rows that an example picks, one behind the other, or their sum.
struct EmbeddingSpec {
  std::size_t fields = 1;   // rows that an example picks
  std::size_t columns = 1;  // of the table
  bool sum = false;
  std::size_t outputs() const { return sum ? columns : fields * columns; }
  bool operator==(const EmbeddingSpec&) const = default;
};

// Bytes that kernels hold beside operands and workspaces. All calls of a replica share them, so of
// each part the largest counts.
struct KernelMemory {
  std::size_t scratch = 0;  // of one kernel while it runs
  std::size_t between = 0;  // between two kernels of one call
  std::size_t bytes() const { return scratch + between; }
  void cover(const KernelMemory& other) {
    scratch = std::max(scratch, other.scratch);
    between = std::max(between, other.between);
  }
};

// Examples in memory of the host, one behind the other in each array. Where `block` is not empty
// all three lie in it, at whole multiples of 16 bytes, with room for a StepState in its last bytes,
// and it is memory that `allocate_shared` gave: kernels may read it until the next batch is staged.
struct HostBatch {
  std::span<const float> inputs, targets;
  std::span<const std::int64_t> ids;
  std::span<std::byte> block = {};
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual DType dtype() const = 0;
  // Rows of a slice, so that what lies between two cheap layers stays in the cache; 0: batches go
  // through whole, as they must where steps are recorded and replayed.
  virtual std::size_t slice_rows() const { return 0; }

  // Whether what `allocate` gives is memory of the host, and kernels are done when a call returns.
  virtual bool in_host_memory() const { return true; }
  // Zeroed memory for operands. Throws Error(kMemory), which names `what`, or Error(kIo).
  virtual Buffer allocate(std::size_t bytes, std::string_view what);
  // Zeroed memory that both the host and kernels read and write, for numbers that they exchange.
  virtual Buffer allocate_shared(std::size_t bytes);
  // Between the host's memory and this device's, behind all kernels so far. A write may end later,
  // but has read all of `from`; a read waits.
  virtual void write(const void* from, std::byte* to, std::size_t bytes);
  virtual void read(const std::byte* from, void* to, std::size_t bytes);
  // Among memory of this device and shared memory, as a kernel among the others.
  virtual void copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes);
  // The words of the next kernels' step. What it returns is given to them; its words are the host's
  // to read only where memory is. Of no more than a few steps it may be used at once.
  virtual const StepState* publish(const StepState& state) { return &state; }
  // The same, and the batch of `state.examples` rows: its inputs to `input` (`load`), its targets
  // and ids to where they are given.
  virtual const StepState* stage(const StepState& state, const HostBatch& batch, Tensor input,
                                 Tensor target, std::int64_t* ids);
  // Waits for all kernels so far, but for reductions and checksums of any thread.
  virtual void synchronize() {}
  // Records an event behind all kernels so far. `number` is 0 or 1, in turn, so the host may be a
  // step ahead of the device. The second function waits for it and throws what went wrong before
  // it.
  virtual void mark_kernels(int number) { (void)number; }
  virtual void wait_for_kernels(int number) { (void)number; }
  // What keeps what is queued, to be done again (engine/ops/recorder.h); null where memory is the
  // host's.
  virtual Recorder* recorder() { return nullptr; }

  // Reductions and checksums are queued beside all other kernels. What orders them, without that
  // the host waits; nothing to do where a call returns when its work is done. Those queued from now
  // on, behind all kernels so far; and kernels queued from now on behind all of these so far:
  virtual void reduce_behind_kernels() {}
  virtual void go_behind_reductions() {}
  // Records event `number`, a small one, behind all reductions so far; a second call moves it. Any
  // thread.
  virtual void record_event(int number) const { (void)number; }
  // Queues later reductions behind an event of other Ops of this process.
  virtual void reduce_behind(const Ops& other, int number) const { (void)other, (void)number; }
  // Waits on the host for an event. Throws what went wrong before it.
  virtual void wait_for_event(int number) const { (void)number; }
  // The queue of reductions as libraries of the device's vendor know it, on whose device they work
  // from now on in this thread; null where there is none.
  virtual void* reductions_queue() const { return nullptr; }
  // Called again and again by waits for the device, on the threads that wait, with how long they
  // have: what it throws ends the wait. One for all replicas on the device; empty: none.
  virtual void set_on_waiting(std::function<void(std::chrono::nanoseconds)> look) { (void)look; }
  // Returns whether an event that was recorded is done. Throws what went wrong before it.
  virtual bool is_done(int number) const {
    (void)number;
    return true;
  }

  // Backward calls get y, so that a fused activation can mask dy; they may overwrite dy. dx.data is
  // null where nobody wants it; so is dw or db of a frozen parameter. The others are written, or
  // added to where `accumulate`. Weights are read only before the call returns.
  virtual void dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w,
                             Tensor b, Tensor y) = 0;
  virtual void dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y,
                              Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                              bool accumulate) = 0;
  virtual void convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                   Tensor w, Tensor b, Tensor y) = 0;
  virtual void convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                    Tensor y, Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                                    bool accumulate) = 0;
  // Whether backward of a convolution can add to dx in the pass that makes it.
  virtual bool adds_gradients() const { return false; }
  // Between `begin_apart` and `end_apart`, backward of dense layers and convolutions that have a dx
  // may make gradients of weights apart: on a second queue, beside the kernels that follow. What
  // such a layer was given as x, dy and workspace stays as it is until a later `begin_apart` says
  // that fewer layers before it may still run (`running`, below kMostApart), or until `join_apart`.
  // Kernels queued after that, and reductions behind any `reduce_behind_kernels`, come behind these
  // gradients. `apart_bytes`: what layers should read together meanwhile; 0: nothing goes apart.
  static constexpr std::size_t kMostApart = 8;
  virtual std::size_t apart_bytes() const { return 0; }
  virtual void begin_apart(std::size_t /*running*/) {}
  virtual void end_apart() {}
  virtual void join_apart() {}

  // What dense layers and convolutions forward and backward will hold: planned without making
  // anything, so of a library's kernels it is an estimate. Kernels that are not asked need little.
  virtual KernelMemory dense_memory(const DenseSpec&, std::size_t /*rows*/) const { return {}; }
  virtual KernelMemory convolution_memory(const ConvolutionSpec&, std::size_t /*rows*/) const {
    return {};
  }

  // `workspace` (pool_workspace bytes for so many rows) carries what backward needs, e.g. the
  // places of the maxima; the first maximum of a window wins.
  virtual std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows) = 0;
  virtual void pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                            std::byte* workspace) = 0;
  virtual void pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                             const std::byte* workspace) = 0;
  // Whether a max pool goes back through the ReLU before it, too (PoolSpec::relu).
  virtual bool pools_relu() const { return false; }

  // A convolution and the pool behind it: x to y, the pooled values. `workspace` (for so many rows,
  // the same in all slices) carries what backward and the next slice need. Here, as the two kernels
  // one after the other with all values between them in the workspace; a device may do better.
  virtual std::size_t pooled_convolution_workspace(const PooledConvolutionSpec& spec,
                                                   std::size_t rows);
  virtual void pooled_convolution_forward(const StepState* state, const PooledConvolutionSpec& spec,
                                          Tensor x, Tensor w, Tensor b, Tensor y,
                                          PooledConvolutionMemory memory);
  virtual void pooled_convolution_backward(const StepState* state,
                                           const PooledConvolutionSpec& spec, Tensor x, Tensor dy,
                                           Tensor w, Tensor dx, Tensor dw, Tensor db,
                                           PooledConvolutionMemory memory, bool accumulate);
  virtual KernelMemory pooled_convolution_memory(const PooledConvolutionSpec& spec,
                                                 std::size_t rows) const {
    return convolution_memory(spec.convolution, rows);
  }

  // Batch normalisation (engine/ops/batch_norm.h), step by step. The sums of x over the rows in
  // use; backward's, and the gradients of the parameters, which are written, or added to where
  // `accumulate` (none: not wanted).
  virtual void batch_norm_sums(const StepState* state, const BatchNormSpec& spec, Tensor x,
                               double* sums) = 0;
  virtual void batch_norm_forward(const StepState* state, const BatchNormSpec& spec,
                                  const BatchNormForward& call) = 0;
  virtual void batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                        const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                        bool accumulate, double* sums) = 0;
  virtual void batch_norm_backward(const StepState* state, const BatchNormSpec& spec,
                                   const BatchNormBackward& call) = 0;
  // Backward of a pair, whose dx are not the memory of dy. A device may read dy once for both.
  virtual void batch_norm_pair_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                             const BatchNormPair& pair, bool accumulate,
                                             const std::array<BatchNormGradients, 2>& results);
  virtual void batch_norm_pair_backward(const StepState* state, const BatchNormSpec& spec,
                                        const BatchNormPair& pair);
  // What forward needs, from the sums, or from moving averages. Cost: a few channels.
  virtual void batch_norm_moments(const BatchNormSpec& spec, const BatchNormMoments& call);
  virtual void batch_norm_fixed_moments(const BatchNormSpec& spec, const double* averages,
                                        double* moments);
  // The sums, and the moments of these: of a batch norm that is not synchronised.
  virtual void batch_norm_statistics(const StepState* state, const BatchNormSpec& spec, Tensor x,
                                     double* sums, const BatchNormMoments& call) {
    batch_norm_sums(state, spec, x, sums);
    batch_norm_moments(spec, call);
  }

  // Element-wise; outputs may be the inputs' memory.
  virtual void relu(const StepState* state, Tensor x, Tensor y) = 0;
  virtual void relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) = 0;
  virtual void tanh(const StepState* state, Tensor x, Tensor y) = 0;
  virtual void tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) = 0;
  virtual void add(const StepState* state, Tensor a, Tensor b, Tensor y) = 0;  // y = a + b
  // y = x in the rows in use.
  virtual void copy(const StepState* state, Tensor x, Tensor y);
  virtual void dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) = 0;
  // Columns [from, from + count) of x become columns [to, to + count) of y; and zeros in all of y.
  // Only in the rows in use. What stands here, and not at a device, serves those whose memory is
  // the host's.
  virtual void copy_columns(const StepState* state, Tensor x, std::size_t from, Tensor y,
                            std::size_t to, std::size_t count);
  virtual void clear(const StepState* state, Tensor y);

  // Reads the ids of x and writes, for each example and field, the row of the table that it picks:
  // `places` [rows, fields]. Throws Error(kInvalid) that names the layer, the example and the
  // number where one is no id: they come from files.
  virtual void embedding_rows(const StepState* state, const RowSource& source, Tensor x,
                              std::string_view layer, std::uint32_t* places);
  // `places` name rows of the table w, [any number of rows, columns]. Backward writes all rows of
  // dw, those that nobody picked with zeros, or adds where `accumulate`; it adds up in the order of
  // the examples, so a row's gradient has the same bits wherever in the table the row lies.
  virtual void embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                                 const std::uint32_t* places, Tensor w, Tensor y) = 0;
  virtual void embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                                  const std::uint32_t* places, Tensor dy, Tensor dw,
                                  bool accumulate) = 0;

  // Losses. `target` is float32: [rows, 1] the class, or [rows, columns]. `losses` and `correct`
  // are float64 [rows]: each example's loss, and 1 where its class has the largest logit (the first
  // of equals). dy, where wanted, is the gradient of the mean loss over the whole batch: times
  // inverse_examples and loss_scale. Of each label the part `smoothing` is spread evenly over all
  // classes: loss -sum q log softmax(logits), q = (1 - smoothing) [class] + smoothing / classes.
  virtual void softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits,
                                     Tensor target, Tensor dlogits, Tensor losses,
                                     Tensor correct) = 0;
  // Loss of an example: the mean over its columns of (y - target)^2.
  virtual void squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                             Tensor losses) = 0;
  virtual void softmax(const StepState* state, Tensor logits, Tensor probabilities) = 0;

  // The one sum over the rows of a batch: float64 [rows] to a number on the host, as a balanced
  // tree in row order.
  virtual double batch_sum(const StepState* state, Tensor rows) = 0;
  // The same, queued: to shared memory.
  virtual void queue_batch_sum(const StepState* state, Tensor rows, double* sum) {
    *sum = batch_sum(state, rows);
  }
  // Of two batches, which have the same rows: to two numbers there, one behind the other.
  virtual void queue_batch_sums(const StepState* state, Tensor first, Tensor second, double* sums) {
    queue_batch_sum(state, first, sums);
    queue_batch_sum(state, second, sums + 1);
  }

  // Host float32 to this device's element type: x.elements() of them.
  virtual void load(const float* from, Tensor x) = 0;

  // Of memory that is written: these two are queued beside all other kernels (see above); a
  // checksum is waited for.
  // A 64-bit sum; equal bits give equal sums, whatever the order of adding: the sum over i of
  // checksum_word(word_i, offset + i) of engine/ops/definitions.h, modulo 2^64, over 4-byte words
  // (a last short one is filled with zeros); `offset` counts words.
  virtual std::uint64_t checksum(const std::byte* data, std::size_t bytes,
                                 std::size_t offset) const = 0;
  // The same among all other kernels, queued, for ranges of elements of `data`, each from offset 0:
  // added to sums[i]. Both arrays lie in memory that `allocate` gave.
  virtual void queue_checksums(const std::byte* data, std::span<const Range> ranges,
                               std::uint64_t* sums) {
    const std::size_t width = size_of(dtype());
    for (const Range& range : ranges)
      *sums++ += checksum(data + range.begin * width, range.size() * width, 0);
  }

  // Any thread.
  virtual void reduce(const ReduceArguments& arguments) const = 0;
  // What updates need of all gradients (engine/ops/update_factors.h), as a reduction behind those
  // so far: its memory and squares are where kernels reach them, `state` is the host's.
  virtual void find_factors(const FactorArguments& arguments) const {
    engine::find_factors(arguments);
  }
};

}  // namespace lockstep::engine
