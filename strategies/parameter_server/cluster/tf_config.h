// SPDX-License-Identifier: MIT
// The cluster and this process's task, from the environment variable TF_CONFIG. The format is
// TensorFlow's, so the same launchers can start lockstep:
//
//   {"cluster": {"chief": ["h0:2222"], "worker": ["h1:2222"], "ps": ["h2:2222"]},
//    "task": {"type": "worker", "index": 0}}
//
// Worker 0 is the chief if there is no job "chief". An index may be quoted, as in pod templates.
// Evaluators may be listed; they are not part of the cluster.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/cluster/cluster.h"

namespace lockstep::strategies {

// Names the use of the cluster: a parameter server strategy needs servers, and all-reduce must have
// none. kEither accepts both, for callers that choose later.
enum class ClusterUse : std::uint8_t { kParameterServer, kAllReduce, kEither };

struct ClusterConfig {
  ClusterSpec spec = {};
  ClusterTask task = {};                   // this process
  std::vector<std::string> warnings = {};  // one line per ignored setting
};

// Returns the value of TF_CONFIG in the environment. Returns null if it names no cluster: it is
// unset, blank, null or {}, or its "cluster" is {}, as for programs of one process.
const char* tf_config_of_environment();

// Parses the variable's value `text`. Pure. Throws Error(kInvalid) with one line that begins with
// TF_CONFIG and gives the valid form.
ClusterConfig parse_tf_config(std::string_view text, ClusterUse use);

// Returns the value of TF_CONFIG for this spec and task, to start tasks with. parse_tf_config
// returns the same spec and task for it.
std::string tf_config(const ClusterSpec& spec, const ClusterTask& task);

}  // namespace lockstep::strategies
