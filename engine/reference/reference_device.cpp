// SPDX-License-Identifier: MIT
#include "engine/reference/reference_device.h"

#include "engine/base/error.h"
#include "engine/device/host_stream.h"
#include "engine/reference/batch_norm.h"
#include "engine/reference/convolution.h"
#include "engine/reference/dense.h"
#include "engine/reference/embedding.h"
#include "engine/reference/losses.h"
#include "engine/reference/pointwise.h"
#include "engine/reference/pool.h"
#include "engine/reference/reduce.h"
#include "engine/reference/reference_ops.h"

namespace lockstep::engine {

template class ReferenceOps<float>;
template class ReferenceOps<double>;
template class ReferenceOps<BFloat16>;

namespace {

class ReferenceDevice final : public Device {
 public:
  DeviceId id() const override { return {"reference", 0}; }
  std::string description() const override { return "plain loops on the host, for tests"; }
  std::string instructions() const override { return "as compiled"; }
  DType default_dtype() const override { return DType::kFloat64; }
  bool supports(DType dtype) const override {
    return dtype == DType::kFloat64 || dtype == DType::kFloat32 || dtype == DType::kBFloat16;
  }
  Buffer allocate(std::size_t bytes) override { return Buffer(bytes); }
  std::unique_ptr<Stream> stream() override { return std::make_unique<HostStream>(); }
  std::unique_ptr<Ops> ops(DType dtype, OpsOptions) override { return reference_ops(dtype); }
};

}  // namespace

std::unique_ptr<Device> reference_device() {
  return std::make_unique<ReferenceDevice>();
}

std::unique_ptr<Ops> reference_ops(DType dtype) {
  if (dtype == DType::kFloat32) return std::make_unique<ReferenceOps<float>>();
  if (dtype == DType::kFloat64) return std::make_unique<ReferenceOps<double>>();
  if (dtype == DType::kBFloat16) return std::make_unique<ReferenceOps<BFloat16>>();
  fail(Code::kInvalid,
       "reference:0 has no kernels for {}; it has them for float64, float32 and bfloat16",
       name(dtype));
}

}  // namespace lockstep::engine
