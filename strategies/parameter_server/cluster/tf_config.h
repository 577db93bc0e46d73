// SPDX-License-Identifier: MIT
// A cluster, and who of it this process is, as the environment variable TF_CONFIG says it to
// TensorFlow's programs, so that whatever starts these can start ours:
//
//   {"cluster": {"chief": ["h0:2222"], "worker": ["h1:2222"], "ps": ["h2:2222"]},
//    "task": {"type": "worker", "index": 0}}
//
// Without a job "chief" worker 0 is the chief. An index may be quoted, as templates of pods do.
// Evaluators may be listed or not: they are not part of the cluster.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "strategies/parameter_server/cluster/cluster.h"

namespace lockstep::strategies {

// What the cluster is for: a parameter server strategy needs servers, all-reduce has no use for
// them, and who is still to choose takes either.
enum class ClusterUse : std::uint8_t { kParameterServer, kAllReduce, kEither };

struct ClusterConfig {
  ClusterSpec spec = {};
  ClusterTask task = {};                   // this process
  std::vector<std::string> warnings = {};  // what was ignored: a line each
};

// The value of TF_CONFIG in the environment. Null where it names no cluster: it is not set, blank,
// null or {}, or its "cluster" is {}, as programs of one process have it.
const char* tf_config_of_environment();

// `text`: the variable's value. Pure. Throws Error(kInvalid), one line that begins with TF_CONFIG
// and says what would be right.
ClusterConfig parse_tf_config(std::string_view text, ClusterUse use);

// What parse_tf_config reads back as the same spec and task: to start tasks with.
std::string tf_config(const ClusterSpec& spec, const ClusterTask& task);

}  // namespace lockstep::strategies
