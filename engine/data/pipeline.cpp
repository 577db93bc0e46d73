// SPDX-License-Identifier: MIT
#include "engine/data/pipeline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <numeric>
#include <stop_token>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"

namespace lockstep::engine {

Range next_batch(const DataPosition& position, std::uint64_t examples, std::uint64_t batch) {
  require(batch > 0, "data: a batch of 0 examples; it needs at least 1");
  require(position.epoch >= 0, "data: epoch {} is negative", position.epoch);
  require(position.example < examples || position.example == 0,
          "data: position {} of an epoch of {} examples: was it saved with other data?",
          position.example, examples);
  const std::uint64_t left = examples - position.example;
  return {position.example, position.example + std::min(batch, left)};
}

DataPosition after_batch(DataPosition position, std::uint64_t examples, std::uint64_t batch) {
  position.example = next_batch(position, examples, batch).end;
  if (position.example == examples) position = {position.epoch + 1, 0};
  return position;
}

// Cuts a batch of n examples in proportion to the sums of shares: cut(i) = floor(n * before(i) /
// total), where before(i) sums the shares before rank i. The parts of 4 ranks are therefore unions
// of the parts of 8.
Range share_of(Range batch, int rank, int ranks, const std::vector<std::uint64_t>& shares) {
  require(ranks > 0 && rank >= 0 && rank < ranks, "data: rank {} of {} ranks", rank, ranks);
  require(shares.empty() || shares.size() == std::size_t(ranks),
          "data: {} shares for {} ranks; one for each is needed", shares.size(), ranks);
  std::uint64_t before = std::uint64_t(rank), mine = 1, total = std::uint64_t(ranks);
  if (!shares.empty()) {
    constexpr std::uint64_t kMost = 0xffffffff;  // no product below overflows 64 bits
    total = 0;
    for (const std::uint64_t share : shares) {
      require(share <= kMost - total, "data: shares add up to more than {}", kMost);
      total += share;
    }
    require(total > 0, "data: all shares are 0; at least one rank needs work");
    before = std::accumulate(shares.begin(), shares.begin() + rank, std::uint64_t{0});
    mine = shares[std::size_t(rank)];
  }
  const std::uint64_t whole = batch.size() / total, rest = batch.size() % total;
  const auto cut = [&](std::uint64_t sum) {
    return batch.begin + whole * sum + rest * sum / total;
  };
  return {cut(before), cut(before + mine)};
}

void Batch::resize(std::size_t rows, std::size_t input_elements, std::size_t target_columns,
                   const BatchMemory& give) {
  constexpr std::size_t kAligned = 16;
  const auto rounded = [](std::size_t bytes) {
    return (bytes + kAligned - 1) / kAligned * kAligned;
  };
  const std::size_t of_inputs = rounded(rows * input_elements * sizeof(float));
  const std::size_t of_targets = rounded(rows * target_columns * sizeof(float));
  const std::size_t of_ids = rounded(rows * sizeof(std::int64_t));
  const std::size_t bytes = of_inputs + of_targets + of_ids + kRoom;
  if (memory.bytes() < bytes) {
    memory = {};  // freed before its successor is allocated
    if (give) {
      memory = give(bytes);
    } else {  // unaligned: aligned blocks would fragment the heap
      auto* const data = new std::byte[bytes]();
      memory = Buffer(data, bytes, [data] { delete[] data; });
    }
    shared = bool(give);
  }
  used = {memory.data(), bytes};
  inputs = {reinterpret_cast<float*>(memory.data()), rows * input_elements};
  targets = {reinterpret_cast<float*>(memory.data() + of_inputs), rows * target_columns};
  ids = {reinterpret_cast<std::int64_t*>(memory.data() + of_inputs + of_targets), rows};
}

namespace {

// Holds one request: its batch, how many rows readers have taken, and how many are done.
struct Slot {
  Batch batch;
  std::int64_t epoch = 0;
  std::size_t given = 0;              // rows that a reader has taken
  std::size_t done = 0;               // rows read, or given up after an error
  int readers = 0;                    // threads that read it now
  std::atomic<bool> dropped = false;  // canceled: readers stop at their next row
  std::exception_ptr error;           // the first error
};

}  // namespace

// Requests are numbered. `ring[number % ring.size()]` is the slot of an outstanding request: taken
// <= number < requested. Readers work on the oldest slot that has rows left, a few rows at a time,
// so several threads share one batch. `take` swaps the slot's batch with `held`, so memory
// circulates and is never freed.
struct Pipeline::State {
  State(const Dataset& data, PipelineOptions o)
      : dataset(data),
        options(o),
        examples(data.size()),
        input_elements(data.input_shape().elements()),
        target_columns(data.target_columns()),
        key(stream_key(o.seed, "shuffle")) {
    ring.push_back(std::make_unique<Slot>());
    if (options.in_place) return;
    require(options.threads >= 1, "data: {} prefetching threads; it needs at least 1",
            options.threads);
    for (int i = 0; i < options.threads; ++i) {
      try {
        threads.emplace_back([this](std::stop_token stop) { work(stop); });
      } catch (const std::system_error& error) {
        fail(Code::kIo, "data: cannot start prefetching thread {} of {}: {}", i + 1,
             options.threads, error.what());
      }
    }
  }

  ~State() {
    for (std::jthread& thread : threads) thread.request_stop();
  }

  Slot& slot(std::uint64_t number) { return *ring[number % ring.size()]; }

  // Returns the examples of an epoch in their order. It is drawn once and kept for two epochs,
  // because requests run ahead across the end of an epoch.
  const std::vector<std::uint64_t>& order_of(std::int64_t epoch) {
    Order& order = orders[std::size_t(epoch) % orders.size()];
    if (order.epoch != epoch) {
      order.epoch = -1;
      order.examples = permutation(examples, key, std::uint64_t(epoch));
      order.epoch = epoch;
    }
    return order.examples;
  }

  // Reads rows [rows.begin, rows.end) of the slot's batch; stops early if the slot is dropped.
  void read(Slot& slot, Range rows, std::stop_token stop) {
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      if (slot.dropped || stop.stop_requested()) return;
      const std::span<float> inputs = slot.batch.inputs, targets = slot.batch.targets;
      const std::uint64_t example = std::uint64_t(slot.batch.ids[row]);
      const auto input = inputs.subspan(row * input_elements, input_elements);
      const auto target = targets.subspan(row * target_columns, target_columns);
      try {
        if (options.plain) {
          dataset.read(example, input, target);
        } else {
          dataset.read_in(slot.epoch, example, input, target);
        }
      } catch (...) {
        throw_with_example(example);
      }
    }
  }

  // Throws the current exception again, with the example in its text. An Error keeps its code.
  [[noreturn]] void throw_with_example(std::uint64_t example) const {
    const auto named = [&](Code code, std::string_view what) {
      fail(code, "data: example {} of {}: {}", example, dataset.describe(), what);
    };
    try {
      throw;
    } catch (const Error& error) {
      named(error.code(), error.what());
    } catch (const std::bad_alloc&) {
      named(Code::kMemory, "out of memory");
    } catch (const std::system_error& error) {
      named(Code::kIo, error.what());
    } catch (const std::exception& error) {
      named(Code::kInvalid, error.what());
    } catch (...) {
      named(Code::kInvalid, "it threw what is no std::exception");
    }
    broken("an exception that was not thrown on");
  }

  // Returns the oldest request with rows left to read, or null. Call it under the lock.
  Slot* unread() {
    while (started < requested && slot(started).given == slot(started).batch.rows()) ++started;
    return started < requested ? &slot(started) : nullptr;
  }

  void work(std::stop_token stop) {
    std::unique_lock lock(mutex);
    for (;;) {
      Slot* found = nullptr;
      if (!wanted.wait(lock, stop, [&] { return (found = unread()) != nullptr; })) return;
      if (stop.stop_requested()) return;
      Slot& slot = *found;
      const std::size_t all = slot.batch.rows(), pieces = std::size_t(options.threads) * 2;
      const std::size_t piece = options.threads == 1 ? all : std::max<std::size_t>(1, all / pieces);
      const Range rows{slot.given, std::min(all, slot.given + piece)};
      slot.given = rows.end;
      ++slot.readers;
      lock.unlock();
      std::exception_ptr error;
      try {
        read(slot, rows, stop);
      } catch (...) {
        error = std::current_exception();
      }
      lock.lock();
      finish(slot, rows, error);
    }
  }

  // Counts finished rows. After an error the rest of the batch counts as done, so nobody starts on
  // it.
  void finish(Slot& slot, Range rows, const std::exception_ptr& error) {
    --slot.readers;
    slot.done += rows.size();
    if (error && !slot.error) {
      slot.error = error;
      slot.done += slot.batch.rows() - slot.given;
      slot.given = slot.batch.rows();
    }
    if (slot.dropped) {
      if (slot.readers == 0) {
        std::erase_if(dropped, [&](const auto& d) { return d.get() == &slot; });
      }
    } else if (slot.done == slot.batch.rows()) {
      filled.notify_one();
    }
  }

  void request(std::int64_t epoch, Range positions) {
    require(epoch >= 0, "data: epoch {} is negative", epoch);
    require(positions.begin <= positions.end && positions.end <= examples,
            "data: positions {} to {} of an epoch of {} examples", positions.begin, positions.end,
            examples);
    {
      const std::lock_guard lock(mutex);
      if (requested - taken == ring.size()) grow();
    }
    // No reader sees the slot before `requested` counts it.
    Slot& slot = this->slot(requested);
    Batch& batch = slot.batch;
    batch.resize(positions.size(), input_elements, target_columns, options.memory);
    if (options.shuffle) {
      const std::vector<std::uint64_t>& order = order_of(epoch);
      std::copy_n(order.begin() + std::ptrdiff_t(positions.begin), positions.size(),
                  batch.ids.begin());
    } else {
      std::iota(batch.ids.begin(), batch.ids.end(), std::int64_t(positions.begin));
    }
    slot.epoch = epoch;
    slot.given = slot.done = 0;
    slot.error = nullptr;
    {
      const std::lock_guard lock(mutex);
      ++requested;
    }
    wanted.notify_all();
  }

  void grow() {
    std::vector<std::unique_ptr<Slot>> larger(ring.size() * 2);
    for (auto& slot : larger) slot = std::make_unique<Slot>();
    for (std::uint64_t n = taken; n < requested; ++n) {
      larger[n % larger.size()] = std::move(ring[n % ring.size()]);
    }
    ring = std::move(larger);
  }

  const Batch& take() {
    std::unique_lock lock(mutex);
    require(taken < requested, "data: take() without a request");
    Slot& slot = this->slot(taken);
    const auto ready = [&] { return slot.done == slot.batch.rows(); };
    if (options.in_place && !ready()) {
      const Range all{0, slot.batch.rows()};
      slot.given = slot.done = all.end;
      try {
        read(slot, all, {});
      } catch (...) {
        slot.error = std::current_exception();
      }
    }
    if (!filled.wait_for(lock, options.timeout, ready)) {
      fail(Code::kTimeout, "data: {} of {} examples of a batch read after {} ms ({})", slot.done,
           slot.batch.rows(), options.timeout.count(), dataset.describe());
    }
    started = std::max(started, ++taken);
    if (slot.error) std::rethrow_exception(std::exchange(slot.error, nullptr));
    std::swap(held, slot.batch);
    return held;
  }

  // Drops all requests. A slot with readers is left to them, and the last one deletes it; a new
  // slot takes its place.
  void cancel() {
    const std::lock_guard lock(mutex);
    for (std::uint64_t n = taken; n < requested; ++n) {
      std::unique_ptr<Slot>& slot = ring[n % ring.size()];
      if (slot->readers == 0) continue;
      slot->dropped = true;
      dropped.push_back(std::make_unique<Slot>());
      std::swap(dropped.back(), slot);
    }
    taken = started = requested;
  }

  struct Order {
    std::int64_t epoch = -1;
    std::vector<std::uint64_t> examples;
  };

  const Dataset& dataset;
  const PipelineOptions options;
  const std::uint64_t examples;
  const std::size_t input_elements, target_columns;
  const std::uint64_t key;
  std::array<Order, 2> orders;  // used by the replica's thread only
  Batch held;

  std::mutex mutex;  // guards everything below
  std::condition_variable_any wanted;
  std::condition_variable filled;
  std::vector<std::unique_ptr<Slot>> ring, dropped;
  std::uint64_t taken = 0, started = 0, requested = 0;
  std::vector<std::jthread> threads;  // last, so it joins before others are destroyed
};

Pipeline::Pipeline(const Dataset& dataset, PipelineOptions options)
    : state_(std::make_unique<State>(dataset, options)) {}
Pipeline::~Pipeline() = default;

void Pipeline::request(std::int64_t epoch, Range positions) {
  state_->request(epoch, positions);
}
const Batch& Pipeline::take() {
  return state_->take();
}
void Pipeline::cancel() {
  state_->cancel();
}

std::size_t Pipeline::outstanding() const {
  const std::lock_guard lock(state_->mutex);
  return std::size_t(state_->requested - state_->taken);
}

}  // namespace lockstep::engine
