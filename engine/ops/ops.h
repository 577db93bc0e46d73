// SPDX-License-Identifier: MIT
// The kernels that every device implements, for one replica and one element type. Batch tensors
// have the planned number of rows. The first `state->examples` rows are in use; the others are not
// read and need not be written. With 0 rows in use, gradients of weights are zero. Activations are
// NHWC. Convolution weights are [filters, kernel_height, kernel_width, channels]; dense weights are
// [outputs, inputs]. All extents are known when the graph is planned. A kernel creates its scratch
// and library objects at the first call of a shape and keeps them.
//
// A device may queue kernels and run them later, in call order. Its memory is then not the host's:
// only `read` and `write` access memory from `allocate`, and kernels take the state that `publish`
// returned. A kernel that finds an invalid id or label throws, or the next waiting call throws:
// `read`, `synchronize`, `batch_sum`.
//
// Threads: only the replica's computing thread, except that any thread may call `reduce` and
// `checksum` at any time. Cost: one pass over the operands unless stated. Errors: Error(kDevice)
// from a library; wrong shapes are broken invariants.
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

// Computes y = activation(x w' + b).
struct DenseSpec {
  std::size_t inputs = 0, outputs = 0;
  bool bias = true;
  Activation activation = Activation::kNone;
  bool operator==(const DenseSpec&) const = default;
};

// Computes y = activation(x * w + b), a cross-correlation with `padding` zeros on both sides of an
// axis.
struct ConvolutionSpec {
  std::size_t height = 0, width = 0, channels = 0;  // input size
  std::size_t filters = 0;
  std::size_t kernel_height = 1, kernel_width = 1;
  std::size_t stride = 1, padding = 0;
  bool bias = true;
  Activation activation = Activation::kNone;
  // Makes backward add to dx instead of overwriting it. Requires Ops::adds_gradients().
  bool adds = false;
  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  // The numbers of elements of a row of x, of a row of y, and of w follow.
  std::size_t inputs() const { return height * width * channels; }
  std::size_t outputs() const { return output_height() * output_width() * filters; }
  std::size_t weights() const { return filters * kernel_height * kernel_width * channels; }
  bool operator==(const ConvolutionSpec&) const = default;
};

enum class PoolKind : std::uint8_t { kMax, kAverage };  // the average leaves padding out

struct PoolSpec {
  PoolKind kind = PoolKind::kMax;
  std::size_t height = 0, width = 0, channels = 0;  // input size
  std::size_t kernel_height = 2, kernel_width = 2;
  std::size_t stride = 2, padding = 0;
  // Marks a max pool of a ReLU's outputs. Backward then gives the gradient of the ReLU's inputs,
  // which is zero for windows without a positive value. Requires Ops::pools_relu().
  bool relu = false;
  std::size_t output_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::size_t output_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::size_t inputs() const { return height * width * channels; }  // elements of a row
  std::size_t outputs() const { return output_height() * output_width() * channels; }
  bool operator==(const PoolSpec&) const = default;
};

// Combines a convolution, its activation, and a max pool of adjacent windows (stride = window size,
// no padding). Windows that do not fit at the lower and right edge are left out.
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

// Describes the position of a slice in a pass. A batch may go through some kernels in slices of
// rows, so that values between two layers stay in the cache. All slices of a pass see the same
// weights. The first slice computes what is derived from them; the last completes the gradient of
// the weights.
struct Slice {
  bool first = true, last = true;
};

// Holds the workspace of a pooled convolution for `rows` rows, and the position of one call in it.
struct PooledConvolutionMemory {
  std::byte* workspace = nullptr;
  std::size_t rows = 0;   // rows that the workspace was made for
  std::size_t first = 0;  // the call's first row
  Slice slice = {};
};

// The random numbers of a dropout layer. It keeps unit j of example e (its id) at step t if
// uniform(random_bits(key, e, (t << 32) | (j / 4))[j % 4]) >= rate; engine/ops/definitions.h
// defines this for all devices. Masks therefore do not depend on how replicas share a batch.
// Backward calls the same kernel with dy.
struct DropoutSpec {
  // Kept units are multiplied by 1 / (1 - rate).
  double rate = 0.5;      // probability of dropping a unit; others are scaled
  std::uint64_t key = 0;  // stream_key(seed, layer name) of engine/base/random.h
  bool operator==(const DropoutSpec&) const = default;
};

// Names the table rows that a batch selects. Columns [first, first + fields) of the batch hold ids,
// integers of 0 .. rows - 1. Id i of field f selects row f * rows + i, so each field has its own
// rows.
struct RowSource {
  static constexpr std::size_t kMostRows = std::size_t(1) << 24;  // float32 counts up to this
  std::size_t first = 0;
  std::size_t fields = 0;  // 0: selects nothing
  std::size_t rows = 0;    // per field
  bool operator==(const RowSource&) const = default;
};

// Describes an embedding: y is the concatenation or the sum of the rows that an example selects.
struct EmbeddingSpec {
  std::size_t fields = 1;   // rows that an example selects
  std::size_t columns = 1;  // table columns
  bool sum = false;
  std::size_t outputs() const { return sum ? columns : fields * columns; }
  bool operator==(const EmbeddingSpec&) const = default;
};

// Counts the bytes that kernels hold besides operands and workspaces. All calls of a replica share
// them, so the largest value of each part counts.
struct KernelMemory {
  std::size_t scratch = 0;  // one kernel's, while it runs
  std::size_t between = 0;  // between two kernels of one call
  std::size_t bytes() const { return scratch + between; }
  void cover(const KernelMemory& other) {
    scratch = std::max(scratch, other.scratch);
    between = std::max(between, other.between);
  }
};

// Holds examples in host memory, contiguous in each array. If `block` is not empty, all three
// arrays lie in it at multiples of 16 bytes, and its last bytes have room for a StepState. `block`
// is then memory from `allocate_shared`, which kernels may read until the next batch is staged.
struct HostBatch {
  std::span<const float> inputs, targets;
  std::span<const std::int64_t> ids;
  std::span<std::byte> block = {};
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual DType dtype() const = 0;
  // Returns the rows of a slice, sized so that values between two cheap layers stay in the cache.
  // 0: batches are not sliced, as graph capture requires.
  virtual std::size_t slice_rows() const { return 0; }

  // Returns whether `allocate` gives host memory and kernels are done when their call returns.
  virtual bool in_host_memory() const { return true; }
  // Allocates zeroed memory for operands. Throws Error(kMemory), which names `what`, or Error(kIo).
  virtual Buffer allocate(std::size_t bytes, std::string_view what);
  // Allocates zeroed memory that both the host and kernels read and write.
  virtual Buffer allocate_shared(std::size_t bytes);
  // Copies between the host's memory and this device's, after all kernels so far. `write` may
  // return before the copy ends, but has read all of `from`; `read` waits.
  virtual void write(const void* from, std::byte* to, std::size_t bytes);
  virtual void read(const std::byte* from, void* to, std::size_t bytes);
  // Copies within this device's memory and shared memory, in order with the other kernels.
  virtual void copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes);
  // Publishes the state of the step for later kernels, and returns the pointer to pass to them. The
  // host may read it only if in_host_memory(). At most a few steps' states may be in use at once.
  virtual const StepState* publish(const StepState& state) { return &state; }
  // Publishes the state and copies the batch of `state.examples` rows: its inputs to `input` (as
  // `load` does), its targets to `target` and its ids to `ids`.
  virtual const StepState* stage(const StepState& state, const HostBatch& batch, Tensor input,
                                 Tensor target, std::int64_t* ids);
  // Waits for all kernels so far, but not for reductions and checksums.
  virtual void synchronize() {}
  // Records an event behind all kernels so far. `number` alternates between 0 and 1, so the host
  // may be a step ahead of the device. The second function waits for the event and rethrows earlier
  // failures.
  virtual void mark_kernels(int number) { (void)number; }
  virtual void wait_for_kernels(int number) { (void)number; }
  // Returns the recorder for graph capture (engine/ops/recorder.h); null if in_host_memory().
  virtual Recorder* recorder() { return nullptr; }

  // Reductions and checksums are queued separately from all other kernels. These functions order
  // the two queues without blocking the host; they do nothing on a synchronous device. The first
  // makes later reductions wait for all kernels so far, the second later kernels for all reductions
  // so far.
  virtual void reduce_behind_kernels() {}
  virtual void go_behind_reductions() {}
  // Records event `number`, a small integer, behind all reductions so far; a second call moves it.
  // Thread-safe.
  virtual void record_event(int number) const { (void)number; }
  // Makes later reductions wait for an event of other Ops of this process.
  virtual void reduce_behind(const Ops& other, int number) const { (void)other, (void)number; }
  // Waits on the host for an event. Rethrows failures of the work before it.
  virtual void wait_for_event(int number) const { (void)number; }
  // Returns the vendor's handle of the reductions' queue (null if there is none), and makes its
  // device current for this thread.
  virtual void* reductions_queue() const { return nullptr; }
  // Sets the callback that waits for the device call repeatedly, on the waiting thread, with the
  // time waited so far. An exception from it ends the wait. All replicas on the device share one
  // callback; an empty one removes it.
  virtual void set_on_waiting(std::function<void(std::chrono::nanoseconds)> look) { (void)look; }
  // Returns whether a recorded event is done. Rethrows failures of the work before it.
  virtual bool is_done(int number) const {
    (void)number;
    return true;
  }

  // Backward calls get y, so that a fused activation can mask dy; they may overwrite dy. dx.data is
  // null if the gradient is not wanted, as are dw and db of a frozen parameter. The others are
  // written, or added to if `accumulate`. Weights are read only before the call returns.
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
  // Returns whether backward of a convolution can add to dx in the pass that computes it.
  virtual bool adds_gradients() const { return false; }
  // Between `begin_apart` and `end_apart`, backward of dense layers and convolutions with a dx may
  // compute gradients of weights on a second queue, beside the kernels that follow. `begin_apart`
  // waits for all such layers except the last `running` ones (below kMostApart), `join_apart` for
  // all. A layer's x, dy and workspace must stay unchanged until one of them has waited for it.
  // Kernels queued after `join_apart`, and reductions after any `reduce_behind_kernels`, run after
  // these gradients. `apart_bytes` is the number of bytes that layers should read together
  // meanwhile; 0 disables the second queue.
  static constexpr std::size_t kMostApart = 8;
  virtual std::size_t apart_bytes() const { return 0; }
  virtual void begin_apart(std::size_t /*running*/) {}
  virtual void end_apart() {}
  virtual void join_apart() {}

  // Returns the memory that forward and backward of a layer will hold, without creating anything;
  // for a library's kernels it is an estimate. Kernels without such a function need little memory.
  virtual KernelMemory dense_memory(const DenseSpec&, std::size_t /*rows*/) const { return {}; }
  virtual KernelMemory convolution_memory(const ConvolutionSpec&, std::size_t /*rows*/) const {
    return {};
  }

  // `workspace` (pool_workspace bytes for the planned rows) carries what backward needs, e.g. the
  // positions of the maxima. The first maximum of a window wins.
  virtual std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows) = 0;
  virtual void pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                            std::byte* workspace) = 0;
  virtual void pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                             const std::byte* workspace) = 0;
  // Returns whether backward of a max pool can include the ReLU before it (PoolSpec::relu).
  virtual bool pools_relu() const { return false; }

  // Runs a convolution and the pool behind it, from x to the pooled values y. `workspace` (for the
  // planned rows, the same in all slices) carries what backward and the next slice need. By default
  // the two kernels run one after the other and all values between them lie in the workspace.
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

  // Batch normalization (engine/ops/batch_norm.h) runs step by step. Both functions of sums take
  // the rows in use. The gradients of the parameters are written, or added to if `accumulate`;
  // empty tensors are not wanted.
  virtual void batch_norm_sums(const StepState* state, const BatchNormSpec& spec, Tensor x,
                               double* sums) = 0;
  virtual void batch_norm_forward(const StepState* state, const BatchNormSpec& spec,
                                  const BatchNormForward& call) = 0;
  virtual void batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                        const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                        bool accumulate, double* sums) = 0;
  virtual void batch_norm_backward(const StepState* state, const BatchNormSpec& spec,
                                   const BatchNormBackward& call) = 0;
  // Runs backward of a pair, whose dx do not alias dy. A device may read dy once for both.
  virtual void batch_norm_pair_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                             const BatchNormPair& pair, bool accumulate,
                                             const std::array<BatchNormGradients, 2>& results);
  virtual void batch_norm_pair_backward(const StepState* state, const BatchNormSpec& spec,
                                        const BatchNormPair& pair);
  // Computes the moments for forward, from the sums or from moving averages. Cost: a few operations
  // per channel.
  virtual void batch_norm_moments(const BatchNormSpec& spec, const BatchNormMoments& call);
  virtual void batch_norm_fixed_moments(const BatchNormSpec& spec, const double* averages,
                                        double* moments);
  // Computes the sums and the moments from them, for a batch norm that is not synchronized.
  virtual void batch_norm_statistics(const StepState* state, const BatchNormSpec& spec, Tensor x,
                                     double* sums, const BatchNormMoments& call) {
    batch_norm_sums(state, spec, x, sums);
    batch_norm_moments(spec, call);
  }

  // Element-wise kernels follow. Their outputs may alias inputs.
  virtual void relu(const StepState* state, Tensor x, Tensor y) = 0;
  virtual void relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) = 0;
  virtual void tanh(const StepState* state, Tensor x, Tensor y) = 0;
  virtual void tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) = 0;
  virtual void add(const StepState* state, Tensor a, Tensor b, Tensor y) = 0;  // y = a + b
  // Copies x to y in the rows in use.
  virtual void copy(const StepState* state, Tensor x, Tensor y);
  virtual void dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) = 0;
  // The first function copies columns [from, from + count) of x to columns [to, to + count) of y;
  // the second sets y to zero. Both affect only the rows in use. The default implementations are
  // for devices with host memory.
  virtual void copy_columns(const StepState* state, Tensor x, std::size_t from, Tensor y,
                            std::size_t to, std::size_t count);
  virtual void clear(const StepState* state, Tensor y);

  // Reads the ids of x and writes the table row of each example and field to `places` [rows,
  // fields]. Ids come from files: throws Error(kInvalid), which names the layer, the example and
  // the number, if one is invalid.
  virtual void embedding_rows(const StepState* state, const RowSource& source, Tensor x,
                              std::string_view layer, std::uint32_t* places);
  // `places` name rows of the table w [any number of rows, columns]. Backward writes all rows of dw
  // (zeros for rows that no example selects), or adds to them if `accumulate`. It adds in the order
  // of the examples, so the bits of a row's gradient do not depend on its position in the table.
  virtual void embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                                 const std::uint32_t* places, Tensor w, Tensor y) = 0;
  virtual void embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                                  const std::uint32_t* places, Tensor dy, Tensor dw,
                                  bool accumulate) = 0;

  // The losses take a float32 `target`: [rows, 1], the class, or [rows, columns]. `losses` and
  // `correct` are float64 [rows]: each example's loss, and 1 if its class has the largest logit
  // (ties: the first). dy, if wanted, is the gradient of the mean loss over the global batch, i.e.
  // it is multiplied by inverse_examples and loss_scale. Label smoothing spreads the part
  // `smoothing` of each label evenly over all classes: loss = -sum q log softmax(logits), q = (1 -
  // smoothing) [class] + smoothing / classes.
  virtual void softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits,
                                     Tensor target, Tensor dlogits, Tensor losses,
                                     Tensor correct) = 0;
  // Computes each example's loss as the mean over its columns of (y - target)^2.
  virtual void squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                             Tensor losses) = 0;
  virtual void softmax(const StepState* state, Tensor logits, Tensor probabilities) = 0;

  // Returns the sum over the rows of a batch (float64 [rows]) to the host, as a balanced tree in
  // row order.
  virtual double batch_sum(const StepState* state, Tensor rows) = 0;
  // Queues the same sum, with the result in shared memory.
  virtual void queue_batch_sum(const StepState* state, Tensor rows, double* sum) {
    *sum = batch_sum(state, rows);
  }
  // Queues the sums of two batches with the same rows, with the results at sums[0] and sums[1].
  virtual void queue_batch_sums(const StepState* state, Tensor first, Tensor second, double* sums) {
    queue_batch_sum(state, first, sums);
    queue_batch_sum(state, second, sums + 1);
  }

  // Converts x.elements() float32 numbers of the host to this device's element type.
  virtual void load(const float* from, Tensor x) = 0;

  // Checksums and reductions are queued separately from all other kernels (see above); `checksum`
  // waits for its result: the sum over i of checksum_word(word_i, offset + i) of
  // engine/ops/definitions.h, modulo 2^64, over 4-byte words. It does not depend on the order of
  // adding. The last word is padded with zeros; `offset` counts words.
  virtual std::uint64_t checksum(const std::byte* data, std::size_t bytes,
                                 std::size_t offset) const = 0;
  // Queues checksums in order with all other kernels, for ranges of elements of `data`, each from
  // offset 0, and adds them to sums[i]. Both arrays lie in memory from `allocate`.
  virtual void queue_checksums(const std::byte* data, std::span<const Range> ranges,
                               std::uint64_t* sums) {
    const std::size_t width = size_of(dtype());
    for (const Range& range : ranges)
      *sums++ += checksum(data + range.begin * width, range.size() * width, 0);
  }

  // Runs a reduction. Thread-safe.
  virtual void reduce(const ReduceArguments& arguments) const = 0;
  // Computes what updates need of all gradients (engine/ops/update_factors.h), in order after the
  // reductions so far. Its memory and squares must be accessible to kernels; `state` is the host's.
  virtual void find_factors(const FactorArguments& arguments) const {
    engine::find_factors(arguments);
  }
};

}  // namespace lockstep::engine
