// SPDX-License-Identifier: MIT
#include "tools/data_choice.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/data/augmented.h"
#include "engine/data/cifar_file.h"
#include "engine/data/clicks.h"

namespace lockstep::tools {
namespace {

using engine::brief;

constexpr std::uint64_t kExamples = 8000;
constexpr std::size_t kPadding = 4;  // pixels around an image before a crop

// Names of notes in a manifest.
constexpr const char* kDataNote = "data";
constexpr const char* kTestNote = "test";
constexpr const char* kExamplesNote = "examples";
constexpr const char* kAugmentNote = "augment";

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(nlohmann::json(text).dump());
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// Returns the rows of the model's embeddings for the ids of a field; 0 if it embeds none.
std::size_t buckets_of(const engine::GraphSpec& graph) {
  std::size_t buckets = 0;
  for (const engine::GraphSpec::Node& node : graph.nodes()) {
    std::vector<engine::Shape> shapes;
    for (const auto value : node.inputs) shapes.push_back(graph.shape(value));
    const engine::RowSource source = node.layer->row_source(shapes);
    if (source.fields == 0) continue;
    engine::require(source.first == engine::data::kClickNumbers &&
                        source.fields == engine::data::kClickFields &&
                        graph.input_shape().elements() == engine::data::kClickColumns,
                    "model {} expects other columns than clicks have ({} numbers, then {} ids); "
                    "there is no other data set of ids",
                    graph.name(), engine::data::kClickNumbers, engine::data::kClickFields);
    buckets = buckets == 0 ? source.rows : std::min(buckets, source.rows);
  }
  return buckets;
}

engine::data::Sets choose_clicks(const DataChoice& choice, std::size_t buckets) {
  engine::data::ClicksOptions options{.buckets = buckets};
  if (choice.data == "random") {
    options.train = choice.global_batch;
    options.test = 0;
    options.seed = choice.seed;
    return engine::data::generated_clicks(options);
  }
  if (!choice.data.empty()) return engine::data::criteo(choice.data, buckets, choice.test);
  options.train = choice.examples.value_or(options.train);
  return engine::data::generated_clicks(options);
}

// Draws images for a model whose input has three channels.
engine::data::Sets choose_images(const DataChoice& choice, const engine::GraphSpec& graph) {
  const engine::Shape shape = graph.input_shape();
  engine::data::ImagesOptions options{
      .height = shape[0], .width = shape[1], .classes = graph.output_shape().elements()};
  options.train = choice.examples.value_or(kExamples);
  return engine::data::generated_images(options);
}

engine::data::Sets choose_plain(const DataChoice& choice, const engine::GraphSpec& graph) {
  engine::require(!choice.examples || choice.data.empty(),
                  "--examples {} is for generated data, and --data {} gives others: leave one of "
                  "them out",
                  choice.examples.value_or(0), brief(choice.data));
  const std::size_t buckets = buckets_of(graph);
  engine::require(choice.test.empty() || buckets > 0,
                  "--test {}: test data of images lie beside the training data, in the folder of "
                  "--data: leave it out",
                  choice.test);
  engine::require(choice.test.empty() || (!choice.data.empty() && choice.data != "random"),
                  "--test {} needs --data FILE; generated data has test data of its own",
                  brief(choice.test));
  if (buckets > 0) return choose_clicks(choice, buckets);
  const engine::Shape shape = graph.input_shape();
  const bool colours = shape.rank() == 3 && shape[2] == 3;
  if (choice.data.empty() && colours) return choose_images(choice, graph);
  if (choice.data.empty()) {
    engine::data::DigitsOptions options;
    options.train = choice.examples.value_or(kExamples);
    return engine::data::generated_digits(options);
  }
  if (choice.data == "random") {
    return engine::data::random_images(graph.input_shape(), graph.output_shape().elements(),
                                       choice.global_batch, choice.seed);
  }
  engine::require(!colours || (graph.input_shape()[0] == 32 && graph.input_shape()[1] == 32),
                  "model {} takes images of {}, and files of images are read in 28x28x1 and in "
                  "CIFAR-10's 32x32x3: leave --data out, or use --data random",
                  graph.name(), to_string(graph.input_shape()));
  if (colours || !engine::data::find_cifar10(choice.data).empty())
    return engine::data::cifar10(choice.data);
  return engine::data::idx(choice.data, graph.output_shape().elements());
}

}  // namespace

engine::data::Sets choose_data(const DataChoice& choice, const engine::GraphSpec& graph) {
  engine::data::Sets sets = choose_plain(choice, graph);
  const bool crop = choice.augment.starts_with("crop"), flip = choice.augment.ends_with("flip");
  sets.train = engine::data::augmented(
      sets.train,
      {.pad = crop ? kPadding : 0, .flip = flip, .seed = choice.seed, .around = sets.around});
  return sets;
}

std::map<std::string, std::string> data_notes(const DataChoice& choice) {
  std::map<std::string, std::string> notes;
  const auto put = [&](const char* name, const std::string& flag) {
    const bool drawn = flag.empty() || flag == "random";
    const std::string path = drawn ? flag : std::filesystem::absolute(flag).string();
    if (!path.empty() && is_utf8(path)) notes[name] = path;
  };
  put(kDataNote, choice.data);
  put(kTestNote, choice.test);
  if (choice.examples) notes[kExamplesNote] = std::to_string(*choice.examples);
  if (choice.augment != "none") notes[kAugmentNote] = choice.augment;
  return notes;
}

DataChoice recorded_choice(const engine::RunState& state) {
  const auto note = [&](const char* name) {
    const auto found = state.notes.find(name);
    return found == state.notes.end() ? std::string() : found->second;
  };
  DataChoice choice;
  choice.data = note(kDataNote);
  choice.test = note(kTestNote);
  choice.global_batch = state.global_batch;
  choice.seed = state.seed;
  if (const std::string text = note(kExamplesNote); !text.empty()) {
    std::uint64_t examples = 0;
    std::from_chars(text.data(), text.data() + text.size(), examples);
    if (examples > 0) choice.examples = examples;
  }
  if (const std::string augment = note(kAugmentNote); !augment.empty()) choice.augment = augment;
  return choice;
}

engine::GraphSpec recorded_graph(const engine::RunState& state) {
  engine::require(
      !state.model.empty(),
      "the checkpoint records no model's name: this command reads checkpoints of lockstep train; a "
      "program of your own uses Trainer::restore with Trainer::predict or Trainer::evaluate");
  const bool synchronised = state.graph.find(", synchronised") != std::string::npos;
  return models::build(state.model, {.synchronised = synchronised});
}

}  // namespace lockstep::tools
