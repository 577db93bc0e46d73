// SPDX-License-Identifier: MIT
// A piece of hardware that can hold replicas. Each replica on it asks for its own `Ops`. Devices
// live as long as the list that engine/runtime made. Thread-safe.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/device/buffer.h"

namespace lockstep::engine {

class Ops;  // engine/ops/ops.h
enum class DType : std::uint8_t;

// kAuto selects the fastest kernels for each size. kDirect computes each sum as its formula says,
// product by product: no Winograd, slower, and a little more accurate. kWinograd uses Winograd's
// method wherever possible, even if it is slower.
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

// Orders work on a device. On the host all work is done when a call returns, so a host stream is
// always idle. Each of its waits ends with the work before it.
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
  // Returns the instruction sets of its kernels on this machine, with versions, for comparison. The
  // last bits of results depend on them, as on OpsOptions.
  virtual std::string instructions() const = 0;
  // Returns the kernels chosen by measurement so far, one per line; empty if nothing is measured.
  // The last bits of results depend on these, too. They are complete after a step of each kind.
  virtual std::string choices() const { return {}; }
  // Adopts the choices of a device like this one, with the same instructions(), for all that is not
  // chosen yet. Call it before the first step. Throws Error(kCorrupt) for an invalid text.
  virtual void adopt_choices(const std::string& choices) { (void)choices; }
  virtual DType default_dtype() const = 0;
  virtual bool supports(DType dtype) const = 0;
  virtual Buffer allocate(std::size_t bytes) = 0;  // zeroed; throws Error(kIo)
  virtual std::unique_ptr<Stream> stream() = 0;
  // Lets the kernels of this device access all present and future memory of `other` like their own;
  // not the other way round. Returns false if they cannot. A device reaches itself. Valid while
  // both exist; another call costs little and changes nothing.
  virtual bool reach(Device& other) { return this == &other; }
  // Returns the kernels for one replica. Throws Error(kInvalid) that names device and dtype if
  // there are none.
  virtual std::unique_ptr<Ops> ops(DType dtype, OpsOptions options) = 0;
};

}  // namespace lockstep::engine
