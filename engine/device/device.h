// SPDX-License-Identifier: MIT
// A piece of hardware that can hold a replica. One device may carry several replicas: each asks it
// for `Ops` of its own. Devices live as long as the list that engine/runtime made; all calls may
// come from any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/device/buffer.h"

namespace lockstep::engine {

class Ops;  // engine/ops/ops.h
enum class DType : std::uint8_t;

// kAuto: the fastest kernels for each size. kDirect: each sum as its formula says, product by
// product: no Winograd, slower, and a little more accurate. kWinograd: Winograd's method wherever
// it can be used, even where it is slower.
enum class Kernels : std::uint8_t { kAuto, kDirect, kWinograd };
std::string_view name(Kernels kernels);     // "auto", "direct", "winograd"
Kernels kernels_of(std::string_view name);  // throws Error(kInvalid) for an unknown name

struct OpsOptions {
  int threads = 1;  // library threads that a kernel may use
  Kernels kernels = Kernels::kAuto;
};

struct DeviceId {
  std::string kind;  // "cpu", "reference"
  int index = 0;
  bool operator==(const DeviceId&) const = default;
};
std::string to_string(const DeviceId& id);          // "cpu:0"
DeviceId parse_device_id(const std::string& text);  // "cpu" means "cpu:0"; throws Error(kInvalid)

// An order of work on a device. On the host all work is done when a call returns, so a host stream
// is always idle. Every wait that it offers ends with the work before it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceId id() const = 0;
  virtual std::string description() const = 0;  // for people: "Intel Xeon, AVX-512, 8 cores"
  // Which instruction sets its kernels use on this machine, and their versions, for comparison: on
  // these depend the last bits of what they compute, as on OpsOptions.
  virtual std::string instructions() const = 0;
  // Which kernels were chosen by measuring so far, a line each; empty where nothing is measured.
  // The last bits depend on these too, and they are complete after a step of each kind.
  virtual std::string choices() const { return {}; }
  // What was chosen is chosen again where nothing was yet: `choices` are a device's like this one,
  // with the same instructions(). Before the first step. Throws Error(kCorrupt) of another text.
  virtual void adopt_choices(const std::string& choices) { (void)choices; }
  virtual DType default_dtype() const = 0;
  virtual bool supports(DType dtype) const = 0;
  virtual Buffer allocate(std::size_t bytes) = 0;  // zeroed; throws Error(kIo)
  virtual std::unique_ptr<Stream> stream() = 0;
  // From now on the kernels of this device read and write the memory of `other`, also what it gives
  // out later, as they do their own; not the other way round. False where they cannot. A device
  // reaches itself. For as long as both are there; calling again costs little and changes nothing.
  virtual bool reach(Device& other) { return this == &other; }
  // The kernels for one replica.
  // Throws Error(kInvalid) naming device and dtype where it has no kernels.
  virtual std::unique_ptr<Ops> ops(DType dtype, OpsOptions options) = 0;
};

}  // namespace lockstep::engine
