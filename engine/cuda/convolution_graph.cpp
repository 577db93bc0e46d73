// SPDX-License-Identifier: MIT
#include "engine/cuda/convolution_graph.h"

#include <algorithm>
#include <span>
#include <utility>

#include "engine/base/error.h"

namespace lockstep::engine::cuda {
namespace {

cudnnDataType_t cudnn_type(DType type) {
  invariant(type == DType::kFloat32 || type == DType::kBFloat16 || type == DType::kFloat16,
            "convolutions on a GPU are of float32, bfloat16 or float16");
  if (type == DType::kFloat32) return CUDNN_DATA_FLOAT;
  return type == DType::kBFloat16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF;
}

const char* pass_name(Convolution::Pass pass) {
  if (pass == Convolution::Pass::kForward) return "forward";
  return pass == Convolution::Pass::kGradientOfData ? "gradient of data" : "gradient of weights";
}

// Returns a description of the convolution with all properties of its graph.
std::string convolution_text(const Convolution& call) {
  const ConvolutionSpec& s = call.spec;
  const bool forward = call.pass == Convolution::Pass::kForward;
  return fmt::format(
      "convolution, {}, of {} images {}x{}x{} of {}, {} filters {}x{}, stride {}, "
      "padding {}{}{}{}",
      pass_name(call.pass), call.rows, s.height, s.width, s.channels, engine::name(call.dtype),
      s.filters, s.kernel_height, s.kernel_width, s.stride, s.padding,
      forward && s.bias ? ", bias" : "",
      forward && s.activation == Activation::kRelu ? ", relu" : "",
      !forward && call.accumulate ? ", added" : "");
}

}  // namespace

ConvolutionGraph::ConvolutionGraph(const Cudnn& library, const Convolution& call,
                                   CudnnTarget target, bool tf32)
    : library_(&library),
      call_(call),
      target_(target),
      tf32_(tf32),
      graph_(library, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) {
  const ConvolutionSpec& s = call.spec;
  const auto extents = [](std::size_t n, std::size_t c, std::size_t h, std::size_t w) {
    return Extents{std::int64_t(n), std::int64_t(c), std::int64_t(h), std::int64_t(w)};
  };
  const Extents x = extents(call.rows, s.channels, s.height, s.width),
                w = extents(s.filters, s.channels, s.kernel_height, s.kernel_width),
                y = extents(call.rows, s.filters, s.output_height(), s.output_width());
  switch (call.pass) {
    case Convolution::Pass::kForward:
      add_forward(x, w, y);
      break;
    case Convolution::Pass::kGradientOfData:
      add_gradient_of_data(x, w, y);
      break;
    case Convolution::Pass::kGradientOfWeights:
      add_gradient_of_weights(x, w, y);
      break;
  }
  if (target_.handle != nullptr) graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target_.handle);
  graph_.set_descriptors(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations_).finalize();
}

const CudnnDescriptor& ConvolutionGraph::keep(CudnnDescriptor part) {
  parts_.push_back(std::move(part));
  return parts_.back();
}

const CudnnDescriptor& ConvolutionGraph::operand(Operand number, const Extents& extents) {
  return tensor(number, extents, cudnn_type(call_.dtype), true);
}

const CudnnDescriptor& ConvolutionGraph::between(const Extents& extents) {
  return tensor(numbers_++, extents, CUDNN_DATA_FLOAT, false);
}

const CudnnDescriptor& ConvolutionGraph::tensor(std::int64_t number, const Extents& extents,
                                                cudnnDataType_t type, bool in_memory) {
  const auto [n, c, h, w] = extents;
  const Extents strides{h * w * c, 1, w * c, c};
  CudnnDescriptor made(*library_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::span<const std::int64_t>(extents))
      .set(CUDNN_ATTR_TENSOR_STRIDES, std::span<const std::int64_t>(strides))
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, std::int64_t(kAlignment))
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, !in_memory)
      .finalize();
  return keep(std::move(made));
}

const CudnnDescriptor& ConvolutionGraph::steps() {
  using Pair = std::array<std::int64_t, 2>;
  const auto padding = std::int64_t(call_.spec.padding), stride = std::int64_t(call_.spec.stride);
  const Pair paddings{padding, padding}, strides{stride, stride}, dilations{1, 1};
  CudnnDescriptor made(*library_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, std::int64_t(paddings.size()))
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, std::span<const std::int64_t>(paddings))
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, std::span<const std::int64_t>(paddings))
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::span<const std::int64_t>(strides))
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::span<const std::int64_t>(dilations))
      .finalize();
  return keep(std::move(made));
}

// Adds the convolution, then bias and ReLU if present. The last operation writes y.
void ConvolutionGraph::add_forward(const Extents& x, const Extents& w, const Extents& y) {
  const bool bias = call_.spec.bias, relu = call_.spec.activation == Activation::kRelu;
  const CudnnDescriptor& target = operand(kTarget, y);
  const CudnnDescriptor* sums = bias || relu ? &between(y) : &target;
  CudnnDescriptor made(*library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, operand(kFirst, x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, operand(kSecond, w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *sums)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, steps())
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0.0f)
      .finalize();
  operations_.push_back(keep(std::move(made)).handle());
  if (bias) {
    const CudnnDescriptor& biased = relu ? between(y) : target;
    add_pointwise(CUDNN_POINTWISE_ADD, *sums, &operand(kBias, {1, y[1], 1, 1}), biased);
    sums = &biased;
  }
  if (relu) add_pointwise(CUDNN_POINTWISE_RELU_FWD, *sums, nullptr, target);
}

void ConvolutionGraph::add_gradient_of_data(const Extents& x, const Extents& w, const Extents& y) {
  CudnnDescriptor made(*library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, operand(kFirst, y))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, operand(kSecond, w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, operand(kTarget, x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, steps())
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, call_.accumulate ? 1.0f : 0.0f)
      .finalize();
  operations_.push_back(keep(std::move(made)).handle());
}

void ConvolutionGraph::add_gradient_of_weights(const Extents& x, const Extents& w,
                                               const Extents& y) {
  CudnnDescriptor made(*library_, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, operand(kFirst, x))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, operand(kSecond, y))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, operand(kTarget, w))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, steps())
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, call_.accumulate ? 1.0f : 0.0f)
      .finalize();
  operations_.push_back(keep(std::move(made)).handle());
}

void ConvolutionGraph::add_pointwise(cudnnPointwiseMode_t mode, const CudnnDescriptor& x,
                                     const CudnnDescriptor* second, const CudnnDescriptor& y) {
  CudnnDescriptor what(*library_, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  what.set(CUDNN_ATTR_POINTWISE_MODE, mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_PROPAGATE_NAN)
      .finalize();
  CudnnDescriptor made(*library_, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, keep(std::move(what)))
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  if (second != nullptr) made.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *second);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y).finalize();
  operations_.push_back(keep(std::move(made)).handle());
}

// Returns whether the engine is deterministic and precise enough, according to its numerical notes.
bool ConvolutionGraph::allowed(const CudnnDescriptor& engine) const {
  const auto notes = engine.get_all<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  const auto has = [&](cudnnBackendNumericalNote_t note) {
    return std::find(notes.begin(), notes.end(), note) != notes.end();
  };
  if (has(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)) return false;
  if (has(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION)) return false;
  if (call_.dtype != DType::kFloat32) return true;
  // Tensor cores take float32 as TF32.
  return !has(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
         (tf32_ || !has(CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
}

// The library reports the number of knobs only when it is given descriptors for them.
EngineChoice ConvolutionGraph::choice_of(const CudnnDescriptor& engine,
                                         const CudnnDescriptor& configuration) const {
  std::vector<CudnnDescriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> handles;
  for (int i = 0; i < EngineChoice::kKnobs; ++i) {
    knobs.emplace_back(*library_, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    handles.push_back(knobs.back().handle());
  }
  const std::size_t count =
      configuration.get_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, handles);
  EngineChoice choice{.engine = engine.get<std::int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)};
  for (std::size_t i = 0; i < std::min(count, knobs.size()); ++i) {
    const auto type = knobs[i].get<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
    choice.knobs[type] = knobs[i].get<std::int64_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  }
  return choice;
}

std::optional<ConvolutionPlan> ConvolutionGraph::plan_of(CudnnDescriptor configuration) const {
  CudnnDescriptor engine(*library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t handle = engine.handle();
  configuration.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, std::span(&handle, 1));
  if (!allowed(engine)) return std::nullopt;
  CudnnDescriptor plan(*library_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  if (target_.handle != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, target_.handle);
  if (target_.device != nullptr) plan.set(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *target_.device);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (!plan.try_finalize()) return std::nullopt;
  const auto workspace =
      std::size_t(plan.get<std::int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  if (workspace > kMostWorkspace) return std::nullopt;
  EngineChoice choice = choice_of(engine, configuration);
  return ConvolutionPlan{.choice = std::move(choice),
                         .parts = {},
                         .configuration = std::move(configuration),
                         .plan = std::move(plan),
                         .workspace = workspace};
}

// The library may refuse an unknown engine or knob at any of these steps.
std::optional<ConvolutionPlan> ConvolutionGraph::plan(const EngineChoice& choice) const {
  std::vector<CudnnDescriptor> parts;
  std::vector<cudnnBackendDescriptor_t> knobs;
  try {
    CudnnDescriptor engine(*library_, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    engine.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph_)
        .set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, choice.engine);
    if (target_.device != nullptr) engine.set(CUDNN_ATTR_ENGINE_DEVICEPROP, *target_.device);
    engine.finalize();
    for (const auto& [type, value] : choice.knobs) {
      CudnnDescriptor knob(*library_, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
      knob.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, cudnnBackendKnobType_t(type))
          .set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value)
          .finalize();
      knobs.push_back(knob.handle());
      parts.push_back(std::move(knob));
    }
    CudnnDescriptor configuration(*library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    configuration.set(CUDNN_ATTR_ENGINECFG_ENGINE, engine)
        .set_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, knobs)
        .finalize();
    parts.push_back(std::move(engine));
    std::optional<ConvolutionPlan> plan = plan_of(std::move(configuration));
    if (plan) plan->parts = std::move(parts);
    return plan;
  } catch (const Error& error) {
    if (error.code() != Code::kDevice) throw;
    return std::nullopt;
  }
}

std::string ConvolutionGraph::problem() const {
  const bool rounded = tf32_ && call_.dtype == DType::kFloat32;
  return convolution_text(call_) + (rounded ? ", TF32" : "");
}

void ConvolutionGraph::add_plans(cudnnBackendHeurMode_t mode, std::size_t most,
                                 std::vector<ConvolutionPlan>& plans) const {
  CudnnDescriptor heuristics(*library_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target_.device != nullptr) {
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target_.device);
  }
  if (!heuristics.try_finalize()) return;
  std::vector<CudnnDescriptor> configurations;
  std::vector<cudnnBackendDescriptor_t> handles;
  const std::size_t offered = heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, {});
  for (std::size_t i = 0; i < offered; ++i) {
    configurations.emplace_back(*library_, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    handles.push_back(configurations.back().handle());
  }
  const std::size_t filled = heuristics.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, handles);
  for (std::size_t i = 0; i < std::min(filled, offered) && plans.size() < most; ++i) {
    std::optional<ConvolutionPlan> plan = plan_of(std::move(configurations[i]));
    if (plan) plans.push_back(std::move(*plan));
  }
}

std::vector<ConvolutionPlan> ConvolutionGraph::plans(std::size_t most) const {
  std::vector<ConvolutionPlan> plans;
  add_plans(CUDNN_HEUR_MODE_A, most, plans);
  if (plans.empty()) add_plans(CUDNN_HEUR_MODE_FALLBACK, most, plans);
  if (plans.empty()) {
    const std::string why = library_->last_error();
    fail(Code::kDevice,
         "cuDNN {} has no kernel that gives the same bits every time within {} MiB of workspace "
         "for the {}{}",
         library_->version(), kMostWorkspace >> 20, convolution_text(call_),
         why.empty() ? "" : fmt::format(" ({})", why));
  }
  return plans;
}

}  // namespace lockstep::engine::cuda
