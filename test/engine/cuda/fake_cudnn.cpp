// SPDX-License-Identifier: MIT
#include "test/engine/cuda/fake_cudnn.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/base/error.h"
#include "test/engine/cuda/fake_graph_run.h"

namespace lockstep::engine::cuda {
namespace {

using CudnnObject = FakeCudnn::Object;

thread_local FakeCudnn* current_cudnn = nullptr;

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
  CudnnObject& object = *static_cast<CudnnObject*>(handle);
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

const std::vector<FakeCudnn::Engine>& engines_for(const CudnnObject& heuristics) {
  FakeCudnn& fake = FakeCudnn::current();
  const bool first =
      attribute<int>(heuristics.attributes, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_A;
  return first ? fake.engines : fake.last_resort;
}

const CudnnObject& object_at(const CudnnObject& object, cudnnBackendAttributeName_t name) {
  return *attribute<const CudnnObject*>(object.attributes, name);
}

std::map<int, std::int64_t> knobs_of(const CudnnObject& configuration) {
  std::map<int, std::int64_t> knobs;
  for (const CudnnObject* knob : attributes<const CudnnObject*>(
           configuration.attributes, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES)) {
    knobs[attribute<int>(knob->attributes, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)] =
        attribute<std::int64_t>(knob->attributes, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  }
  return knobs;
}

cudnnStatus_t finalize(cudnnBackendDescriptor_t handle) {
  CudnnObject& object = *static_cast<CudnnObject*>(handle);
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
    const CudnnObject& engine = object_at(object, CUDNN_ATTR_ENGINECFG_ENGINE);
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

// Gets an attribute. With an array of length 0, sets `count` to the number of elements.
cudnnStatus_t get(cudnnBackendDescriptor_t handle, cudnnBackendAttributeName_t name,
                  cudnnBackendAttributeType_t, std::int64_t most, std::int64_t* count,
                  void* values) {
  const CudnnObject& object = *static_cast<CudnnObject*>(handle);
  if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    const auto& engines = engines_for(object);
    *count = std::int64_t(engines.size());
    for (std::int64_t i = 0; i < std::min(most, *count); ++i) {
      CudnnObject* const configuration = static_cast<CudnnObject**>(values)[i];
      configuration->engine = &engines[std::size_t(i)];
      configuration->attributes = object.attributes;
      configuration->held = object.held;
    }
  } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    *count = 1;
    (*static_cast<CudnnObject**>(values))->engine = object.engine;
  } else if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX) {
    *count = 1;
    *static_cast<std::int64_t*>(values) = FakeCudnn::current().number(*object.engine);
  } else if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
    // Like the real library, it reports the count by the number of elements that it fills.
    *count = 0;
    for (const auto& [type, value] : object.engine->knobs) {
      if (*count == most) break;
      auto& knob = static_cast<CudnnObject**>(values)[(*count)++]->attributes;
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
  const CudnnObject& configuration =
      object_at(*static_cast<CudnnObject*>(plan), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  const FakeCudnn::Engine& engine = *configuration.engine;
  fake.ran.push_back(&engine);
  if (!engine.runs) return CUDNN_STATUS_EXECUTION_FAILED;
  const FakeAttributes& operands = static_cast<CudnnObject*>(pack)->attributes;
  // The kernel overwrites the whole workspace repeatedly.
  const auto workspace = attribute<CUdeviceptr>(operands, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  for (int i = 0; i < engine.time; ++i) {
    const CUresult result =
        fake.driver().memset_d8_async(workspace, 0xee, engine.workspace, fake.stream);
    if (result != CUDA_SUCCESS) return CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  }
  const CudnnObject& graph = object_at(configuration, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  FakeGraphRun run(operands);
  for (const CudnnObject* operation :
       attributes<const CudnnObject*>(graph.attributes, CUDNN_ATTR_OPERATIONGRAPH_OPS)) {
    run.operation(operation->type, operation->attributes);
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

FakeCudnn::FakeCudnn(const Driver& driver) : driver_(&driver) {
  invariant(current_cudnn == nullptr, "one fake cuDNN at a time");
  current_cudnn = this;
}

FakeCudnn::~FakeCudnn() {
  current_cudnn = nullptr;
}

FakeCudnn& FakeCudnn::current() {
  return *current_cudnn;
}

CudnnObject* FakeCudnn::make(int type) {
  auto made = std::make_shared<CudnnObject>();
  made->type = type;
  CudnnObject* const address = made.get();
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

std::shared_ptr<const CudnnObject> FakeCudnn::find(const void* object) const {
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
