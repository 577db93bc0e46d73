// SPDX-License-Identifier: MIT
// The contents and counters of a server as JSON, for users and programs. Thread-safe; costs some
// microseconds per container and worker.
#pragma once
#include <string>

#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::strategies {

// Returns JSON of this form:
// {"containers": [{"name", "variables", "bytes", "job": {"generation", "version", "ready",
// "shards", "synchronous", "waiting_calls", "waiting_parts", "pushes": {"applied", "kept", "late",
// "too_stale", "repeated", "lost"}, "pulls", "bytes_pushed", "bytes_pulled", "rows_pushed",
// "rows_pulled", "staleness": {"steps", "mean", "most", "histogram"}, "workers": [{"last", "lost",
// "seconds_since"}]}}]}
// `job` exists if a job is open. "seconds_since": time since the last push, null before the first.
// "histogram" has 17 numbers: steps of staleness 0, 1, ..., 15, and larger.
std::string status_json(const ShardStore& store);

}  // namespace lockstep::strategies
