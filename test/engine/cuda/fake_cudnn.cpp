// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_cudnn.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_graph_run.h"

namespace lockstep::engine::cuda {
namespace {

using Object = FakeCudnn::Object;

thread_local FakeCudnn* current_fake = nullptr;

std::size_t size_of_attribute(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_CHAR:
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    case CUDNN_TYPE_FLOAT:
      return 4;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:
      return sizeof(int);  // enumerations
  }
}

cudnnStatus_t set(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
  const auto* const from = static_cast<const std::byte*>(values);
  Object& object = *static_cast<Object*>(handle);
  object.attributes[name] = {from, from + std::size_t(count) * size_of_attribute(type)};
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (const void* const part : attributes<const void*>(object.attributes, name)) {
      object.held.push_back(FakeCudnn::current().find(part));
    }
  }
  return CUDNN_STATUS_SUCCESS;
}

template <class Value>
std::vector<std::byte> bytes_of(const Value& value) {
  const auto* const from = reinterpret_cast<const std::byte*>(&value);
  return {from, from + sizeof value};
}

const std::vector<FakeCudnn::Engine>& engines_for(const Object& heuristics) {
  FakeCudnn& fake = FakeCudnn::current();
  const bool first =
      attribute<int>(heuristics.attributes, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
  return first ? fake.engines : fake.last_resort;
}

const Object& object_at(const Object& object, cudnnBackendAttributeName_t name) {
  return *attribute<const Object*>(object.attributes, name);
}

std::map<int, std::int64_t> knobs_of(const Object& configuration) {
  std::map<int, std::int64_t> knobs;
  for (const Object* knob :
       attributes<const Object*>(configuration.attributes, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    knobs[attribute<int>(knob->attributes, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
        attribute<std::int64_t>(knob->attributes, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  }
  return knobs;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t handle) {
  Object& object = *static_cast<Object*>(handle);
  if (object.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    const auto extents = attributes<std::int64_t>(object.attributes, CUDNN_ATTR_TENSOR_DIMENSIONS);
    const bool empty = std::ranges::any_of(extents, [](std::int64_t n) { return n <= 0; });
    return empty ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
  }
  if (object.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR) {
    object.engine = FakeCudnn::current().engine(
        attribute<std::int64_t>(object.attributes, CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
    return object.engine == nullptr ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
  }
  if (object.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) {
    const Object& engine = object_at(object, CUDNN_ATTR_ENGINECFG_ENGINE);
    object.engine = engine.engine;
    object.attributes[CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH] =
        engine.attributes.at(CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    return knobs_of(object) == object.engine->knobs ? CUDNN_STATUS_SUCCESS
                                                    : CUDNN_STATUS_NOT_SUPPORTED;
  }
  if (object.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    ++FakeCudnn::current().questions;
    return engines_for(object).empty() ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
  }
  if (object.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const bool builds = object_at(object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine->builds;
    return builds ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

// With an array of no length: how many there are.
cudnnStatus_t get(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t, std::int64_t most, std::int64_t* count,
                  void* values) {
  const Object& object = *static_cast<Object*>(handle);
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    const auto& engines = engines_for(object);
    *count = std::int64_t(engines.size());
    for (std::int64_t i = 0; i < std::min(most, *count); ++i) {
      Object* const configuration = static_cast<Object**>(values)[i];
      configuration->engine = &engines[std::size_t(i)];
      configuration->attributes = object.attributes;
      configuration->held = object.held;
    }
  } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    *count = 1;
    (*static_cast<Object**>(values))->engine = object.engine;
  } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
    *count = 1;
    *static_cast<std::int64_t*>(values) = FakeCudnn::current().number(*object.engine);
  } else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
    // As the real one does, it says how many there are by how many it fills.
    *count = 0;
    for (const auto& [type, value] : object.engine->knobs) {
      if (*count == most) break;
      auto& knob = static_cast<Object**>(values)[(*count)++]->attributes;
      knob[CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE] = bytes_of(type);
      knob[CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE] = bytes_of(value);
    }
  } else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) {
    *count = 1;
    *static_cast<int*>(values) = attribute<int>(object.attributes, name);
  } else if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE) {
    *count = 1;
    *static_cast<std::int64_t*>(values) = attribute<std::int64_t>(object.attributes, name);
  } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
    const auto& notes = object.engine->notes;
    *count = std::int64_t(notes.size());
    std::copy_n(notes.begin(), std::min(most, *count),
                static_cast<cudnnBackendNumericalNote_t*>(values));
  } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
    *count = 1;
    *static_cast<std::int64_t*>(values) =
        std::int64_t(object_at(object, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).engine->workspace);
  } else {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t execute(cudnnHandle_t, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  FakeCudnn& fake = FakeCudnn::current();
  const Object& configuration =
      object_at(*static_cast<Object*>(plan), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const FakeCudnn::Engine& engine = *configuration.engine;
  fake.ran.push_back(&engine);
  if (!engine.runs) return CUDNN_STATUS_EXECUTION_FAILED;
  const FakeAttributes& operands = static_cast<Object*>(pack)->attributes;
  // All of the workspace is written, again and again.
  const auto workspace = attribute<CUdeviceptr>(operands, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  for (int i = 0; i < engine.time; ++i) {
    const CUresult result =
        fake.driver().memset_d8_async(workspace, 0xee, engine.workspace, fake.stream);
    if (result != CUDA_SUCCESS) return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  }
  const Object& graph = object_at(configuration, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  FakeGraphRun run(operands);
  for (const Object* operation :
       attributes<const Object*>(graph.attributes, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    run.operation(operation->type, operation->attributes);
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

FakeCudnn::FakeCudnn(const Driver& driver) : driver_(&driver) {
  invariant(current_fake == nullptr, "one fake cuDNN at a time");
  current_fake = this;
}

FakeCudnn::~FakeCudnn() {
  current_fake = nullptr;
}

FakeCudnn& FakeCudnn::current() {
  return *current_fake;
}

Object* FakeCudnn::make(int type) {
  auto made = std::make_shared<Object>();
  made->type = type;
  Object* const address = made.get();
  objects_.emplace(address, std::move(made));
  return address;
}

void FakeCudnn::drop(const void* object) {
  invariant(objects_.erase(object) == 1, "what is destroyed was made, and is destroyed once");
}

const FakeCudnn::Engine* FakeCudnn::engine(std::int64_t number) const {
  const auto& list = number < kLastResort ? engines : last_resort;
  const std::int64_t place = number < kLastResort ? number : number - kLastResort;
  return place < 0 || place >= std::int64_t(list.size()) ? nullptr : &list[std::size_t(place)];
}

std::int64_t FakeCudnn::number(const Engine& engine) const {
  std::int64_t number = 0;
  while (this->engine(number) != &engine) {
    ++number;
    invariant(number < 2 * kLastResort, "an engine is one of the fake's");
  }
  return number;
}

std::shared_ptr<const Object> FakeCudnn::find(const void* object) const {
  return objects_.at(object);
}

Cudnn FakeCudnn::functions() const {
  Cudnn f;
  f.version = [] { return std::size_t(90000); };
  f.error_string = [](cudnnStatus_t) { return "CUDNN_STATUS_OF_A_FAKE"; };
  f.last_error_string = [](char* text, std::size_t most) {
    std::strncpy(text, "the fake says no\n", most);
  };
  f.create = [](cudnnHandle_t* handle) {
    *handle = reinterpret_cast<cudnnHandle_t>(current().make(-1));
    return CUDNN_STATUS_SUCCESS;
  };
  f.destroy = [](cudnnHandle_t handle) {
    current().drop(handle);
    return CUDNN_STATUS_SUCCESS;
  };
  f.set_stream = [](cudnnHandle_t, cudaStream_t given) {
    current().stream = given;
    return CUDNN_STATUS_SUCCESS;
  };
  f.create_descriptor = [](cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* handle) {
    *handle = current().make(type);
    return CUDNN_STATUS_SUCCESS;
  };
  f.destroy_descriptor = [](cudnnBackendDescriptor_t handle) {
    current().drop(handle);
    return CUDNN_STATUS_SUCCESS;
  };
  f.set_attribute = set;
  f.get_attribute = get;
  f.finalize = cuda::finalize;
  f.execute = cuda::execute;
  return f;
}

}  // namespace lockstep::engine::cuda
