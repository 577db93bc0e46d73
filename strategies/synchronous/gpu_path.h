// SPDX-License-Identifier: MIT
// Chooses the path of gradients between GPUs of several processes. The paths are sums by a vendor's
// library, direct access to each other's GPU memory, and host memory. With direct access the
// processes of a host become ranks of one host. The library (NCCL) sums if each process has one
// replica on a GPU of its own and all have the same version of NCCL. It allows no fused updates and
// no 16-bit wire. `find` chooses again at every open; processes that share GPUs keep sharing
// them. Not thread-safe. The constructor's arguments must outlive it.
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

  // Chooses the path. Collective if replicas are on GPUs (`queued`) of several processes. `record`:
  // the plan of a checkpoint. If processes share GPUs, updates the topology and the job
  // accordingly. Throws Error(kInvalid) on all processes if a requested path is impossible.
  void find(collectives::Topology& topology, bool queued, const std::string& record);

  // The vendor's sums that suit these replicas best. If there are none, `no_vendor` is the reason,
  // as the end of a sentence that begins with the library's name.
  const std::string& vendor() const { return vendor_; }
  const std::string& no_vendor() const { return no_vendor_; }
  // Returns whether GPUs are shared with other processes of some host.
  bool shares() const { return shares_; }
  // Returns the explanation for users; empty if there is none.
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
