// SPDX-License-Identifier: MIT
// The path of gradients between GPUs of several processes: sums by a vendor's library, memory of
// each other's GPUs, which makes the processes of a host ranks of one host, or memory of the host.
// `find` chooses again at every open; once processes share GPUs, they keep sharing them. One
// thread; what the constructor's arguments refer to outlives it.
#pragma once
#include <string>

#include "collectives/job/job.h"
#include "collectives/topology/topology.h"
#include "strategies/synchronous/gpu_sharing.h"
#include "strategies/synchronous/synchronous_options.h"

namespace lockstep::strategies {

class GpuPath {
 public:
  GpuPath(collectives::Job& job, const SynchronousOptions& options)
      : job_(job), options_(options) {}

  // Collective where replicas are on GPUs (`queued`) of several processes. `record`: the plan of a
  // checkpoint. Where processes share GPUs, the topology and the job know it then. Throws
  // Error(kInvalid) on all processes for a path that was asked for and cannot be.
  void find(collectives::Topology& topology, bool queued, const std::string& record);

  // The library's sums that serve these replicas best; or why none do, as the end of a sentence
  // that begins with the library's name.
  const std::string& vendor() const { return vendor_; }
  const std::string& no_vendor() const { return no_vendor_; }
  // Whether GPUs are shared with other processes of some host.
  bool shares() const { return shares_; }
  // For people; empty where there is nothing to say.
  const std::string& sentence() const { return sentence_; }

 private:
  void find_vendor(const collectives::Topology& topology, bool queued);
  bool vendor_adds(const collectives::Topology& topology, const std::string& record) const;
  void share(collectives::Topology& topology, const std::string& record);
  void describe(const GpuSharing& found);
  [[noreturn]] void refuse(const std::string& why);

  collectives::Job& job_;
  const SynchronousOptions& options_;
  std::string vendor_, no_vendor_, sentence_;
  bool shares_ = false;
};

}  // namespace lockstep::strategies
