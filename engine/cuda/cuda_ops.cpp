// SPDX-License-Identifier: MIT
#include "engine/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/error.h"
#include "engine/cuda/cuda_recorder.h"
#include "engine/cuda/kernels/pointwise.h"
#include "engine/cuda/kernels/rows.h"
#include "engine/ops/checks.h"
#include "engine/ops/host_view.h"

namespace lockstep::engine::cuda {

CudaOps::Asked::Asked(const Context& context, Memory& memory)
    : done(context), answer(memory.pinned(sizeof(Problem))) {}

CudaOps::Questions::Questions(const GpuParts& gpu)
    : problem(gpu.memory.allocate(sizeof(Problem), "the words of a step")),
      asked{Asked(gpu.context, gpu.memory), Asked(gpu.context, gpu.memory)} {}

CudaOps::Batches::Batches(const GpuParts& gpu)
    : stream(gpu.context),
      staging(gpu.context, gpu.memory),
      arrived(gpu.context),
      loaded(gpu.context) {}

CudaOps::Beside::Beside(const GpuParts& gpu)
    : stream(gpu.context),
      kernels_done(gpu.context),
      reductions_done(gpu.context),
      staging(gpu.context, gpu.memory),
      word(gpu.memory.allocate(sizeof(std::uint64_t), "the words of a step")),
      pinned_word(gpu.memory.pinned(sizeof(std::uint64_t))),
      state(gpu.memory.allocate(sizeof(StepState), "the words of a step")) {}

CudaOps::CudaOps(const GpuParts& gpu, DType dtype, LaneLibraries libraries, LaneLibraries apart)
    : dtype_(dtype),
      context_(&gpu.context),
      memory_(&gpu.memory),
      kernels_(&gpu.kernels),
      main_(gpu, std::move(libraries), true),
      gradients_(gpu, std::move(apart), false),
      separate_{.forked = Event(gpu.context)},
      staging_(gpu.context, gpu.memory),
      state_(gpu.memory.allocate(sizeof(StepState), "the words of a step")),
      answer_(gpu.memory.pinned(sizeof(double))),
      questions_(gpu),
      batches_(gpu),
      beside_(gpu),
      recorder_(std::make_unique<Recorder>(*this)) {
  while (separate_.done.size() < kMostApart) separate_.done.emplace_back(gpu.context);
  const Problem none;
  write(&none, questions_.problem.data(), sizeof none);
}

// Buffers may be freed only when no queued work uses them.
CudaOps::~CudaOps() {
  recorder_->abandon();
  try {
    batches_.stream.synchronize();
    stream_.synchronize();
    gradients_.stream.synchronize();
    beside_.stream.synchronize();
  } catch (const std::exception&) {
    // Failed work no longer uses the buffers.
  }
}

Buffer CudaOps::allocate(std::size_t bytes, std::string_view what) {
  return memory_->allocate(bytes, what);
}

Buffer CudaOps::allocate_shared(std::size_t bytes) {
  return memory_->pinned(bytes);
}

void CudaOps::write(const void* from, std::byte* to, std::size_t bytes) {
  staging_.write(stream_, from, to, bytes);
}

// A copy into pageable memory may wait in the driver without a deadline, so this first waits for
// the preceding work.
void CudaOps::read(const std::byte* from, void* to, std::size_t bytes) {
  join_apart();
  stream_.synchronize();
  if (recording()) {  // the capture was refused
    std::memset(to, 0, bytes);
    return;
  }
  stream_.copy(to, from, bytes);
  synchronize();
}

void CudaOps::copy_bytes(const std::byte* from, std::byte* to, std::size_t bytes) {
  stream_.copy(to, from, bytes);
}

const StepState* CudaOps::publish(const StepState& state) {
  published_ = state;
  write(&state, state_.data(), sizeof state);
  return reinterpret_cast<const StepState*>(state_.data());
}

void CudaOps::synchronize() {
  join_apart();
  if (recording()) return stream_.synchronize();  // refuses the capture
  if (Asked& asked = questions_.asked[questions_.asking]; !asked.questions.empty())
    stream_.copy(asked.answer.data(), questions_.problem.data(), sizeof(Problem));
  stream_.synchronize();
  if (!recorder_->keeps()) {
    outgrown_.clear();
    main_.forget_outgrown();
    gradients_.forget_outgrown();
  }
  for (const std::size_t older : {1 - questions_.asking, questions_.asking})
    answer(questions_.asked[older]);
}

void CudaOps::mark_kernels(int number) {
  join_apart();
  Asked& asked = questions_.asked[questions_.asking];
  if (!asked.questions.empty())
    stream_.copy(asked.answer.data(), questions_.problem.data(), sizeof(Problem));
  stream_.record(asked.done);
  questions_.marked[std::size_t(number)] = questions_.asking;
  questions_.asking = 1 - questions_.asking;
  if (Asked& next = questions_.asked[questions_.asking];
      !next.questions.empty()) {  // nothing waited for that event
    next.done.synchronize(CudaStream::kDeadline);
    answer(next);
  }
}

void CudaOps::wait_for_kernels(int number) {
  Asked& asked = questions_.asked[questions_.marked[std::size_t(number)]];
  asked.done.synchronize(CudaStream::kDeadline);
  answer(asked);
}

void CudaOps::ask(Question question) {
  if (recording()) return recorder_->note(std::move(question));
  recorder_->make_room(question);
  ask_now(std::move(question));
}

void CudaOps::ask_now(Question question) {
  Tensor& numbers = question.numbers;
  question.rows = std::size_t(published_.examples);
  const std::size_t row = numbers.columns() * size_of(numbers.dtype);
  numbers.data = const_cast<std::byte*>(copy_of(numbers.data, question.rows * row));
  if (published_.ids != nullptr) {
    question.ids = copy_of(reinterpret_cast<const std::byte*>(published_.ids),
                           question.rows * sizeof(std::int64_t));
  }
  questions_.asked[questions_.asking].questions.push_back(std::move(question));
}

const std::byte* CudaOps::copy_of(const std::byte* data, std::size_t bytes) {
  Asked& asked = questions_.asked[questions_.asking];
  if (asked.used == asked.copies.size()) asked.copies.emplace_back();
  Buffer& copy = asked.copies[asked.used++];
  if (copy.bytes() < bytes) {
    outgrown_.push_back(std::move(copy));
    copy = memory_->allocate(bytes, "ids and labels that are looked at");
  }
  stream_.copy(copy.data(), data, bytes);
  return copy.data();
}

// If a kernel found a wrong number, the host repeats the check on all pending questions, also later
// ones. It then throws as for its own kernels. The answer of one event may be a problem that was
// found before the other event.
void CudaOps::answer(Asked& asked) {
  std::vector<Question> questions = std::exchange(asked.questions, {});
  asked.used = 0;
  if (questions.empty() ||
      reinterpret_cast<const Problem*>(asked.answer.data())->first == Problem::kNone)
    return;
  Asked& other = &asked == &questions_.asked[0] ? questions_.asked[1] : questions_.asked[0];
  for (Question& question : std::exchange(other.questions, {}))
    questions.push_back(std::move(question));
  other.used = 0;
  const Problem none;
  write(&none, questions_.problem.data(), sizeof none);
  StepState state = published_;
  for (const Question& question : questions) {
    std::vector<std::int64_t> ids(question.ids == nullptr ? 0 : question.rows);
    state.examples = std::int64_t(question.rows);
    state.ids = question.ids == nullptr ? nullptr : ids.data();
    if (question.ids != nullptr) read(question.ids, ids.data(), ids.size() * sizeof(std::int64_t));
    const HostView numbers(*this, question.numbers, question.rows);
    if (question.layer.empty()) {
      for (std::size_t row = 0; row < question.rows; ++row)
        class_of(numbers.tensor().as<float>()[row], question.classes, row, state.ids);
    } else {
      std::vector<std::uint32_t> places(question.rows * question.source.fields);
      Ops::embedding_rows(&state, question.source, numbers.tensor(), question.layer, places.data());
    }
  }
  broken("a kernel found a number wrong that the host does not");
}

// A batch arrives on a separate stream during the previous step. It stays in a staging buffer until
// the input is free.
void CudaOps::load(const float* from, Tensor x) {
  invariant(x.dtype == dtype_, "load into another element type");
  const std::size_t count = x.elements(), bytes = count * sizeof(float);
  std::byte* const there = arriving(bytes);
  batches_.staging.write(batches_.stream, from, there, bytes);
  batches_.stream.record(batches_.arrived);
  stream_.wait(batches_.arrived);
  if (dtype_ == DType::kFloat32) {
    stream_.copy(x.data, there, bytes);
  } else {
    launch(grid_for(count), Convert{reinterpret_cast<const float*>(there), x.data, count});
  }
  stream_.record(batches_.loaded);
}

std::byte* CudaOps::arriving(std::size_t bytes) {
  if (batches_.memory.bytes() < bytes) {
    outgrown_.push_back(std::move(batches_.memory));
    batches_.memory = memory_->allocate(bytes, "a batch that is on its way");
  }
  batches_.stream.wait(batches_.loaded);  // the previous batch was read from there
  return batches_.memory.data();
}

// Copies the batch with the step state at its end in one transfer; one kernel then distributes it.
// The copy of the previous batch has usually ended. Its host memory may be overwritten when this
// returns.
const StepState* CudaOps::stage(const StepState& state, const HostBatch& batch, Tensor input,
                                Tensor target, std::int64_t* ids) {
  batches_.arrived.synchronize(CudaStream::kDeadline);
  if (batch.block.empty() || state.examples == 0)
    return Ops::stage(state, batch, input, target, ids);
  invariant(input.dtype == dtype_, "a batch for another element type");
  published_ = state;
  std::byte* const words = batch.block.data() + batch.block.size() - sizeof(StepState);
  std::memcpy(words, &state, sizeof state);
  std::byte* const there = arriving(batch.block.size());
  batches_.stream.copy(there, batch.block.data(), batch.block.size());
  batches_.stream.record(batches_.arrived);
  stream_.wait(batches_.arrived);
  const auto part = [&](const void* of_block, void* to, std::size_t bytes) {
    const auto* const at = static_cast<const std::byte*>(of_block);
    return TakeBatch::Words{
        reinterpret_cast<const std::uint32_t*>(there + (at - batch.block.data())),
        static_cast<std::uint32_t*>(to), bytes / sizeof(std::uint32_t)};
  };
  const TakeBatch::Words inputs = part(batch.inputs.data(), nullptr, batch.inputs.size_bytes());
  launch(grid_for(batch.inputs.size()),
         TakeBatch{{reinterpret_cast<const float*>(inputs.from), input.data, batch.inputs.size()},
                   {part(batch.targets.data(), target.data, batch.targets.size_bytes()),
                    part(batch.ids.data(), ids, batch.ids.size_bytes()),
                    part(words, state_.data(), sizeof state)}});
  stream_.record(batches_.loaded);
  return reinterpret_cast<const StepState*>(state_.data());
}

void CudaOps::check_aligned(std::initializer_list<const void*> operands) {
  for (const void* const data : operands)
    invariant(reinterpret_cast<std::uintptr_t>(data) % 16 == 0,
              "operands of this kernel are aligned to 16 bytes");
}

Grid CudaOps::lines_grid(std::size_t lines, std::size_t channels, unsigned residents) const {
  return {.blocks = line_tiles(channels),
          .rows = line_blocks(lines, channels, context_->facts().multiprocessors, residents),
          .threads = kLineThreads};
}

Grid CudaOps::sums_grid(std::size_t groups, const Partials& partials) {
  return {
      .blocks = sum_tiles(groups, partials.tile), .rows = partials.chunks, .threads = kLineThreads};
}

Grid CudaOps::grid_for(std::size_t elements) const {
  constexpr std::size_t kThreads = 256, kOfThread = 8, kBlocksOfProcessor = 8;
  const std::size_t wanted = (elements + kThreads * kOfThread - 1) / (kThreads * kOfThread);
  const std::size_t most = std::size_t(context_->facts().multiprocessors) * kBlocksOfProcessor;
  return {.blocks = unsigned(std::clamp<std::size_t>(wanted, 1, most)), .threads = kThreads};
}

void CudaOps::clear_rest(const StepState* state, Tensor batch) {
  if (std::size_t(published_.examples) >= batch.rows()) return;
  launch(grid_for(batch.elements() / 8 + 1),
         ClearRest{state, batch.data, batch.columns() * size_of(batch.dtype), batch.rows()});
}

}  // namespace lockstep::engine::cuda
