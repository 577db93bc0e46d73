// SPDX-License-Identifier: MIT
#include "engine/nn/graph_buffer.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/nn/touched_rows.h"

namespace lockstep::engine {
namespace {

class BufferPlanner {
 public:
  BufferPlanner(const GraphSpec& spec, const GraphPlan& plan, const GraphSchedule& schedule,
                std::size_t rows)
      : spec_(spec), plan_(plan), schedule_(schedule), rows_(rows) {}
  GraphBuffer plan(Ops& ops);

 private:
  std::size_t book(std::size_t size, std::size_t first, std::size_t last);
  // Books a block for the whole step, because the loop writes or reads it.
  std::size_t book_always(std::size_t size) { return book(size, 0, schedule_.last_moment()); }
  std::size_t bytes(const Shape& shape, DType dtype, bool slice = false) const;
  Shape shape(std::size_t value) const { return spec_.shape({value}); }
  void plan_values(Ops& ops);
  void plan_gradients(const Ops& ops);

  static constexpr std::size_t kNone = GraphBuffer::kNone;
  const GraphSpec& spec_;
  const GraphPlan& plan_;
  const GraphSchedule& schedule_;
  const std::size_t rows_;
  GraphBuffer buffer_;
};

GraphBuffer BufferPlanner::plan(Ops& ops) {
  plan_values(ops);
  plan_gradients(ops);
  for (const GraphPlan::Source& source : plan_.sources)
    buffer_.touched.push_back(book_always(TouchedRows::bytes(source.rows, rows_)));
  buffer_.memory = plan_memory(buffer_.blocks);
  return std::move(buffer_);
}

std::size_t BufferPlanner::book(std::size_t size, std::size_t first, std::size_t last) {
  buffer_.blocks.push_back({size, first, last});
  return buffer_.blocks.size() - 1;
}

std::size_t BufferPlanner::bytes(const Shape& shape, DType dtype, bool slice) const {
  return (slice ? schedule_.slice_rows() : rows_) * shape.elements() * size_of(dtype);
}

// The loop's inputs and outputs live all the time. The output of a layer lives from the layer's
// forward until its last reader: a forward, or a backward that runs and reads it. An inner value of
// a block that runs again lives twice: until its last reader in forward, and again in backward.
void BufferPlanner::plan_values(Ops& ops) {
  const std::size_t count = plan_.storage.size();
  const DType dtype = ops.dtype();
  buffer_.values.assign(count, kNone);
  buffer_.values[0] = book_always(bytes(spec_.input_shape(), dtype));
  buffer_.values_late.assign(count, kNone);
  buffer_.values_late[0] = buffer_.values[0];
  const auto extend = [&](std::size_t block, std::size_t moment) {
    buffer_.blocks[block].last = std::max(buffer_.blocks[block].last, moment);
  };
  for (std::size_t i = 0; i < plan_.nodes.size(); ++i) {
    const PlannedNode& node = plan_.nodes[i];
    // In a chain, backward computes all layers but the last again, also the frozen ones.
    const bool chained = schedule_.chained(i);
    const bool late = chained ? plan_.nodes[schedule_.last_of(i)].backward : node.backward;
    const std::size_t size = bytes(shape(node.output), dtype, schedule_.between(i));
    buffer_.values[node.output] = book(size, schedule_.first_of(i), schedule_.last_of(i));
    buffer_.values_late[node.output] =
        schedule_.again(i) ? book(size, schedule_.again_moment(i), schedule_.again_moment(i))
                           : buffer_.values[node.output];
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t from = plan_.storage[node.inputs[k]];
      extend(buffer_.values[from], schedule_.last_of(i));
      if (schedule_.again(i)) extend(buffer_.values_late[from], schedule_.again_moment(i));
      if (late && (chained || node.layer->backward_reads_input(k)))
        extend(buffer_.values_late[from], schedule_.apart_end(i));
    }
    if (late && (chained || node.layer->backward_reads_output()))
      extend(buffer_.values_late[node.output], schedule_.backward_end(i));
    // A frozen layer has no backward, and may run again for a reader that has one.
    const std::size_t kept = late ? schedule_.apart_end(i) : schedule_.last_of(i);
    buffer_.workspaces.push_back(
        book(node.layer->workspace(ops, node.input_shapes, rows_), schedule_.first_of(i),
             schedule_.again(i) ? std::max(kept, schedule_.again_moment(i)) : kept));
  }
  buffer_.blocks[buffer_.values[plan_.storage[count - 1]]].last = schedule_.last_moment();
  buffer_.target = book_always(bytes({spec_.target_columns()}, DType::kFloat32));
  buffer_.ids = book_always(bytes({1}, DType::kInt64));
  buffer_.losses = book_always(bytes({1}, DType::kFloat64));
  buffer_.correct = book_always(bytes({1}, DType::kFloat64));
}

// A gradient lives from its first writer until backward of the layer that makes the value. The
// first writer is the loss, or the last layer that reads the value. Every further writer adds to
// it, or has its own block during its backward.
void BufferPlanner::plan_gradients(const Ops& ops) {
  const DType dtype = ops.dtype();
  buffer_.gradients.assign(plan_.storage.size(), kNone);
  const std::size_t last_value = plan_.storage[plan_.storage.size() - 1];
  if (plan_.wanted[last_value]) {
    buffer_.gradients[last_value] =
        book(bytes(shape(last_value), dtype), schedule_.loss_moment(), schedule_.loss_moment());
  }
  buffer_.aside.resize(plan_.nodes.size());
  buffer_.adds.assign(plan_.nodes.size(), false);
  for (std::size_t i = plan_.nodes.size(); i-- > 0;) {
    const PlannedNode& node = plan_.nodes[i];
    buffer_.aside[i].assign(node.inputs.size(), kNone);
    if (!node.backward) continue;
    const std::size_t now = schedule_.backward_begin(i), end = schedule_.backward_end(i);
    invariant(buffer_.gradients[node.output] != kNone, "a layer whose gradient nobody writes");
    buffer_.blocks[buffer_.gradients[node.output]].last = schedule_.apart_end(i);
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const std::size_t value = plan_.storage[node.inputs[k]];
      if (!plan_.wanted[value]) continue;
      const bool slice = schedule_.chained(i) && i != schedule_.first_of(i);
      if (buffer_.gradients[value] == kNone) {
        buffer_.gradients[value] = book(bytes(shape(value), dtype, slice), now, end);
      } else if (node.inputs.size() == 1 && node.layer->adds_gradient(ops)) {
        buffer_.adds[i] = true;
      } else {
        buffer_.aside[i][k] = book(bytes(shape(value), dtype), now, end);
      }
    }
  }
}

// Returns what a block holds, in words for people.
std::string name_of(std::size_t block, const GraphBuffer& buffer, const GraphSpec& spec,
                    const GraphPlan& plan, std::size_t rows) {
  for (std::size_t v = 0; v < plan.storage.size(); ++v) {
    const bool is_value = buffer.values[v] == block || buffer.values_late[v] == block,
               is_gradient = buffer.gradients[v] == block;
    if (!is_value && !is_gradient) continue;
    std::string text = is_value ? "" : "the gradient of ";
    text += v == 0 ? "the input" : "the output of " + spec.nodes()[v - 1].name;
    return text + ", " + to_string(spec.shape({v}).with_rows(rows));
  }
  for (std::size_t i = 0; i < plan.nodes.size(); ++i) {
    if (buffer.workspaces[i] == block) return "the workspace of " + plan.nodes[i].name;
    if (std::ranges::find(buffer.aside[i], block) != buffer.aside[i].end()) {
      return "a gradient that " + plan.nodes[i].name + " adds to";
    }
  }
  if (std::ranges::find(buffer.touched, block) != buffer.touched.end()) {
    return "the rows that a batch touches";
  }
  return "targets and losses";
}

}  // namespace

GraphBuffer plan_buffer(const GraphSpec& spec, const GraphPlan& plan, const GraphSchedule& schedule,
                        Ops& ops, std::size_t rows) {
  return BufferPlanner(spec, plan, schedule, rows).plan(ops);
}

GraphMemory memory_of(const GraphBuffer& buffer, const GraphSpec& spec, const GraphPlan& plan,
                      std::size_t rows) {
  const auto largest = std::ranges::max_element(buffer.blocks, {}, &Lifetime::bytes);
  const auto block = std::size_t(largest - buffer.blocks.begin());
  return {buffer.memory.bytes, 0, name_of(block, buffer, spec, plan, rows), largest->bytes};
}

}  // namespace lockstep::engine
