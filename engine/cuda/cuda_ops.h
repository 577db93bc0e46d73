// SPDX-License-Identifier: MIT
// The kernels of one replica on a GPU, for one element type. Calls queue work on the replica's
// stream; between `begin_apart` and `end_apart`, gradients of weights go to a second stream.
// `read`, `synchronize` and `batch_sum` wait for both. `reduce` and `checksum` use a third stream.
// Events order all of them. Members are defined by subject: cuda_ops.cpp (memory),
// cuda_products.cpp (dense layers, convolutions), cuda_pointwise.cpp, cuda_layers.cpp (batch norm,
// pooling), cuda_reduce.cpp. engine/ops/ops.h documents threads, costs and errors.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/cuda/gpu.h"
#include "engine/cuda/host_staging.h"
#include "engine/cuda/kernels/lines.h"
#include "engine/cuda/kernels/problem.h"
#include "engine/cuda/lane.h"
#include "engine/ops/ops.h"

namespace lockstep::engine::cuda {

class CudaOps final : public Ops {
 public:
  CudaOps(const GpuParts& gpu, DType dtype, LaneLibraries libraries, LaneLibraries apart);
  ~CudaOps() override;

  DType dtype() const override { return dtype_; }
  bool in_host_memory() const override { return false; }
  Buffer allocate(std::size_t bytes, std::string_view what) override;
  Buffer allocate_shared(std::size_t bytes) override;
  void write(const void* from, std::byte* to, std::size_t bytes) override;
  void read(const std::byte* from, void* to, std::size_t bytes) override;
  void copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes) override;
  const StepState* publish(const StepState& state) override;
  const StepState* stage(const StepState& state, const HostBatch& batch, Tensor input,
                         Tensor target, std::int64_t* ids) override;
  void synchronize() override;
  void mark_kernels(int number) override;
  void wait_for_kernels(int number) override;
  engine::Recorder* recorder() override;
  void reduce_behind_kernels() override;
  void go_behind_reductions() override;
  void record_event(int number) const override;
  void reduce_behind(const Ops& other, int number) const override;
  void wait_for_event(int number) const override;
  bool is_done(int number) const override;
  // These overloads are for events that other processes see (engine/device/process_sharing.h).
  // Thread-safe.
  void record_event(const Event& shared) const;
  void reduce_behind(const Event& shared) const;
  void* reductions_queue() const override;
  void set_on_waiting(std::function<void(std::chrono::nanoseconds)> look) override;
  void load(const float* from, Tensor x) override;

  void dense_forward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor w, Tensor b,
                     Tensor y) override;
  void dense_backward(const StepState* state, const DenseSpec& spec, Tensor x, Tensor y, Tensor dy,
                      Tensor w, Tensor dx, Tensor dw, Tensor db, bool accumulate) override;
  void convolution_forward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor w,
                           Tensor b, Tensor y) override;
  void convolution_backward(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor y,
                            Tensor dy, Tensor w, Tensor dx, Tensor dw, Tensor db,
                            bool accumulate) override;
  bool adds_gradients() const override { return true; }
  std::size_t apart_bytes() const override { return std::size_t(24) << 20; }
  void begin_apart(std::size_t running) override;
  void end_apart() override;
  void join_apart() override;

  std::size_t pool_workspace(const PoolSpec& spec, std::size_t rows) override;
  void pool_forward(const StepState* state, const PoolSpec& spec, Tensor x, Tensor y,
                    std::byte* workspace) override;
  void pool_backward(const StepState* state, const PoolSpec& spec, Tensor dy, Tensor dx,
                     const std::byte* workspace) override;
  bool pools_relu() const override { return true; }

  void batch_norm_sums(const StepState* state, const BatchNormSpec& spec, Tensor x,
                       double* sums) override;
  void batch_norm_forward(const StepState* state, const BatchNormSpec& spec,
                          const BatchNormForward& call) override;
  void batch_norm_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                const BatchNormBackward& call, Tensor dscale, Tensor dshift,
                                bool accumulate, double* sums) override;
  void batch_norm_backward(const StepState* state, const BatchNormSpec& spec,
                           const BatchNormBackward& call) override;
  void batch_norm_pair_gradient_sums(const StepState* state, const BatchNormSpec& spec,
                                     const BatchNormPair& pair, bool accumulate,
                                     const std::array<BatchNormGradients, 2>& results) override;
  void batch_norm_pair_backward(const StepState* state, const BatchNormSpec& spec,
                                const BatchNormPair& pair) override;
  void batch_norm_moments(const BatchNormSpec& spec, const engine::BatchNormMoments& call) override;
  void batch_norm_fixed_moments(const BatchNormSpec& spec, const double* averages,
                                double* moments) override;
  void batch_norm_statistics(const StepState* state, const BatchNormSpec& spec, Tensor x,
                             double* sums, const engine::BatchNormMoments& call) override;

  void relu(const StepState* state, Tensor x, Tensor y) override;
  void relu_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) override;
  void tanh(const StepState* state, Tensor x, Tensor y) override;
  void tanh_gradient(const StepState* state, Tensor y, Tensor dy, Tensor dx) override;
  void add(const StepState* state, Tensor a, Tensor b, Tensor y) override;
  void copy(const StepState* state, Tensor x, Tensor y) override;
  void dropout(const StepState* state, const DropoutSpec& spec, Tensor x, Tensor y) override;
  void copy_columns(const StepState* state, Tensor x, std::size_t from, Tensor y, std::size_t to,
                    std::size_t count) override;
  void clear(const StepState* state, Tensor y) override;

  void embedding_rows(const StepState* state, const RowSource& source, Tensor x,
                      std::string_view layer, std::uint32_t* places) override;
  void embedding_forward(const StepState* state, const EmbeddingSpec& spec,
                         const std::uint32_t* places, Tensor w, Tensor y) override;
  void embedding_backward(const StepState* state, const EmbeddingSpec& spec,
                          const std::uint32_t* places, Tensor dy, Tensor dw,
                          bool accumulate) override;

  void softmax_cross_entropy(const StepState* state, double smoothing, Tensor logits, Tensor target,
                             Tensor dlogits, Tensor losses, Tensor correct) override;
  void squared_error(const StepState* state, Tensor y, Tensor target, Tensor dy,
                     Tensor losses) override;
  void softmax(const StepState* state, Tensor logits, Tensor probabilities) override;
  double batch_sum(const StepState* state, Tensor rows) override;
  void queue_batch_sum(const StepState* state, Tensor rows, double* sum) override;
  void queue_batch_sums(const StepState* state, Tensor first, Tensor second, double* sums) override;

  std::uint64_t checksum(const std::byte* data, std::size_t bytes,
                         std::size_t offset) const override;
  void queue_checksums(const std::byte* data, std::span<const Range> ranges,
                       std::uint64_t* sums) override;
  void reduce(const ReduceArguments& arguments) const override;
  void find_factors(const FactorArguments& arguments) const override;

 private:
  class Recorder;  // cuda_recorder.h
  // A deferred check of numbers from files: IDs of a layer, or classes.
  struct Question {
    Tensor numbers;           // a copy, as is `ids`
    RowSource source = {};    // source of the IDs
    std::string layer = {};   // layer of the IDs; empty: classes ...
    std::size_t classes = 0;  // ... and their number
    std::size_t rows = 0;
    const std::byte* ids = nullptr;  // example IDs; null: none
  };
  // Holds the questions between two events of kernels. It copies the numbers, since those of the
  // next step may overwrite the originals before the host checks them.
  struct Asked {
    Asked(const Context& context, Memory& memory);
    std::vector<Question> questions;
    std::vector<Buffer> copies;  // the first `used` belong to the questions
    std::size_t used = 0;
    Event done;
    Buffer answer;  // pinned; a Problem
  };

  // Returns Lane::partials of the current lane. `sums_grid` returns the grid of the kernel that
  // adds such sums.
  Partials partials(std::size_t lines, std::size_t channels, std::size_t groups, std::size_t count,
                    unsigned tile = kSumGroups) {
    return lane_->partials(lines, channels, groups, count, tile);
  }
  static Grid sums_grid(std::size_t groups, const Partials& partials);
  // Returns a grid for `elements`: blocks of 256 threads, enough to fill the GPU, with several
  // elements per thread.
  Grid grid_for(std::size_t elements) const;
  // Returns the grid of kernels that write each line.
  Grid lines_grid(std::size_t lines, std::size_t channels,
                  unsigned residents = kLineResidents) const;
  // Sets rows that are not in use to zero, since products go over all rows. Queues nothing if all
  // are in use.
  void clear_rest(const StepState* state, Tensor batch);
  // Calls `data` if there is a dx, and then `gradients`. Between `begin_apart` and `end_apart` each
  // runs in its own lane, after the work queued before.
  template <class Data, class Gradients>
  void backward_apart(bool has_dx, Data data, Gradients gradients);
  // Checks 16-byte alignment, which some kernels assume for their 16-byte loads.
  static void check_aligned(std::initializer_list<const void*> operands);
  void few_channel_gradients(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                             Tensor y, Tensor dy, Tensor dw, Tensor db, bool accumulate);
  void narrow_gradients(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor dy,
                        Tensor dw, Tensor db, bool accumulate);
  void narrow_outputs(const StepState* state, const ConvolutionSpec& spec, Tensor x, Tensor w,
                      Tensor b, Tensor y, bool turned = false);
  std::byte* space_to_depth_images(const StepState* state, const ConvolutionSpec& spec, Tensor x,
                                   std::size_t before);
  void weights_gradient(const StepState* state, Convolution call, Tensor x, Tensor dy, Tensor dw,
                        bool accumulate);
  void mask_gradient(const StepState* state, std::size_t columns, Activation activation, Tensor y,
                     Tensor dy);
  void bias_gradient(const StepState* state, std::size_t positions, std::size_t channels, Tensor dy,
                     Tensor db, bool accumulate);
  void ask(Question question);
  void ask_now(Question question);  // not during capture
  const std::byte* copy_of(const std::byte* data, std::size_t bytes);
  void answer(Asked& asked);  // after a wait; throws for wrong numbers

  template <class Arguments>
  void launch(Grid grid, const Arguments& arguments) {
    // A kernel cannot read host memory.
    if constexpr (requires { arguments.state; })
      invariant(static_cast<const void*>(arguments.state) == state_.data(),
                "kernels get the words of a step that publish gave");
    kernels_->launch(lane_->stream, grid, arguments);
  }

  DType dtype_;
  const Context* context_;
  Memory* memory_;
  const KernelModule* kernels_;
  Lane main_, gradients_;
  Lane* lane_ = &main_;  // the current one
  CudaStream& stream_ = main_.stream;
  struct {
    bool on = false;         // gradients may use their own lane
    std::size_t layers = 0;  // layers in their own lane since `join_apart`
    Event forked;
    std::deque<Event> done = {};  // kMostApart, used in rotation
  } separate_;
  HostStaging staging_;
  StepState published_;           // as last published
  Buffer state_;                  // a StepState on the GPU
  Buffer answer_;                 // pinned: a double
  std::vector<Buffer> outgrown_;  // copies that queued kernels may still use

  struct Questions {
    explicit Questions(const GpuParts& gpu);
    Buffer problem;  // a Problem on the GPU
    std::array<Asked, 2> asked;
    std::size_t asking = 0;               // index of the current one
    std::array<std::size_t, 2> marked{};  // index at each event of kernels
  };
  Questions questions_;

  // Returns the staging buffer for the next batch, once it is free.
  std::byte* arriving(std::size_t bytes);
  // Holds the state of batches that arrive from the host. A batch waits in the staging buffer, in
  // float32, until the input is free. One kernel then distributes inputs, targets, IDs and state.
  struct Batches {
    explicit Batches(const GpuParts& gpu);
    CudaStream stream;
    HostStaging staging;
    Event arrived, loaded;  // batch in the staging buffer; batch distributed
    Buffer memory;          // the staging buffer
  };
  Batches batches_;

  const Event& event(int number) const;  // made on first use
  bool recording() const { return stream_.recorded() != nullptr; }
  const StepState* given(const StepState& state) const;

  // State of reduce, checksum and events. Thread-safe under its mutex.
  struct Beside {
    explicit Beside(const GpuParts& gpu);
    std::mutex mutex;
    CudaStream stream;
    Event kernels_done, reductions_done;  // after the work queued so far
    std::deque<Event> events;             // by number
    HostStaging staging;
    Buffer word, pinned_word;        // 8 bytes
    Buffer state;                    // a StepState on the GPU ...
    std::optional<StepState> given;  // ... and its last queued value
  };
  mutable Beside beside_;

  std::unique_ptr<Recorder> recorder_;  // last: its captures use the members above
};

}  // namespace lockstep::engine::cuda
