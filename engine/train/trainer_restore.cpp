// SPDX-License-Identifier: MIT
// Opening the strategy: with new weights, with those of a checkpoint, or with those it has.
#include <algorithm>

#include "engine/checkpoint/model_difference.h"
#include "engine/train/trainer.h"

namespace lockstep::engine {
namespace {

// Returns a model's description without its last line, which is the loss.
std::string layers_of(const std::string& description) {
  return description.substr(0, description.rfind("\nloss: "));
}

}  // namespace

// Returns the state of a checkpoint, which must belong to this model and data. Every process reads
// it. Null `data` means that only the weights are wanted, which depend on the layers alone.
RunState Trainer::find(Checkpoints& checkpoints, std::int64_t step, const Dataset* data) {
  RunState state = checkpoints.read_state(step);
  const bool weights_alone = data == nullptr;
  const std::string theirs = weights_alone ? layers_of(state.graph) : state.graph;
  const std::string ours = weights_alone ? layers_of(graph_.describe()) : graph_.describe();
  if (theirs != ours) {
    ModelDifference difference = model_difference(theirs, ours);
    if (difference.remedy.empty())
      difference.remedy = "the model " + (state.model.empty() ? "that wrote it" : state.model);
    require(false, difference.option,
            "the checkpoint of step {} holds another model: {}: give another folder for "
            "checkpoints, or {}",
            step, difference.text, difference.remedy);
  }
  require(data == nullptr || state.dataset_fingerprint == data->fingerprint(),
          "the checkpoint of step {} was trained on {}, and this is {}: give another folder for "
          "checkpoints, or the same data",
          step, state.dataset, data == nullptr ? "" : data->describe());
  if (state.seed != seed_) {
    options_.log.warning("the checkpoint's seed {} is used, not {}", state.seed, seed_);
  }
  seed_ = state.seed;
  return state;
}

// Returns the prefixes of array names of the optimizer's slots that the checkpoint lacks.
std::vector<std::string> Trainer::fresh_slots(Checkpoints& checkpoints, const RunState& state) {
  const std::vector<Checkpoints::ArrayInfo> arrays = checkpoints.arrays(state.step);
  std::vector<std::string> fresh;
  for (std::size_t slot = 0; slot < optimizer_.rule.slots(); ++slot) {
    const std::string prefix = std::string(optimizer_.rule.slot_name(slot)) + "/";
    const bool there = std::any_of(arrays.begin(), arrays.end(), [&](const auto& array) {
      return array.name.starts_with(prefix);
    });
    if (!there) fresh.push_back(prefix);
  }
  return fresh;
}

// Opens the strategy, with the checkpoint's plan if there is one, and restores every replica's
// arrays. `fresh` slots start at zero.
void Trainer::open_with(Checkpoints& checkpoints, const std::optional<RunState>& state,
                        std::size_t batch, int accumulate, const std::vector<std::string>& fresh) {
  open(batch, accumulate, state ? state->plan : "");
  if (state)
    strategy_.run(
        [&](Replica& replica) { strategy_.restore(replica, checkpoints, state->step, fresh); });
  require_same_step(state ? state->step : -1);
}

// Checks that all processes continue from the same checkpoint; -1: from none.
void Trainer::require_same_step(std::int64_t step) {
  const auto text = [](double found) { return found < 0 ? "none" : fmt::format("{}", found); };
  strategy_.run([&](Replica& replica) {
    const double mine[] = {double(step)};
    const std::vector<double> all = strategy_.gather(replica, mine, "restoring a checkpoint");
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      require(all[rank] == mine[0],
              "rank {} found checkpoint {}, and rank {} found {}: all hosts must share the folder",
              rank, text(all[rank]), replica.rank, text(mine[0]));
    }
  });
}

RunState Trainer::restore(const std::string& folder, std::optional<std::int64_t> step) {
  require_possible_now("restore");
  const RunState state =
      open_restored(folder, step, batch_ == 0 ? kEvaluationBatch : batch_, accumulate_);
  restored_ = folder;
  restored_step_ = step;
  broken_ = false;
  return state;
}

// Opens the strategy with the weights of a folder's checkpoint: of a step, or the newest valid one.
RunState Trainer::open_restored(const std::string& folder, std::optional<std::int64_t> step,
                                std::size_t batch, int accumulate) {
  Checkpoints checkpoints(*storage_, folder, 1, options_.log);
  RunState state;
  const auto use = [&](std::int64_t found) {
    state = find(checkpoints, found, nullptr);
    open_with(checkpoints, state, batch, accumulate, fresh_slots(checkpoints, state));
  };
  if (step) {
    checkpoints.verify(*step);
    use(*step);
  } else {
    require(checkpoints.use_newest(use), "there is no whole checkpoint in {}", folder);
  }
  return state;
}

// Opens the strategy for a run that continues from no checkpoint. Keeps its weights if the batch
// stays the same.
void Trainer::open_without_checkpoints(std::size_t batch, int accumulate, bool reopen) {
  require_weights();
  if (batch_ == batch && accumulate_ == accumulate && !reopen && !broken_) return;
  require(!trained_ || reopen || broken_,
          "model {} was trained with batch {} and accumulate {}; with batch {} and accumulate {} "
          "it would begin with new weights: use the same again, or continue from checkpoints",
          graph_.name(), batch_, accumulate_, batch, accumulate);
  if (restored_.empty()) {
    open(batch, accumulate, "");
  } else {
    open_restored(restored_, restored_step_, batch, accumulate);
  }
  broken_ = false;
}

}  // namespace lockstep::engine
