// SPDX-License-Identifier: MIT
// What a server holds and has seen, as JSON for people and programs. Any thread; costs some
// microseconds a container and worker.
#pragma once
#include <string>

#include "strategies/parameter_server/server/shard_store.h"

namespace lockstep::strategies {

// {"containers": [{"name", "variables", "bytes", "job": {"generation", "version", "ready",
// "shards", "synchronous", "waiting_calls", "waiting_parts", "pushes": {"applied", "kept", "late",
// "too_stale", "repeated", "lost"}, "pulls", "bytes_pushed", "bytes_pulled", "rows_pushed",
// "rows_pulled", "staleness": {"steps", "mean", "most", "histogram"}, "workers": [{"last", "lost",
// "seconds_since"}]}}]}
// `job` is there where one is open; "seconds_since" its last push, null before the first;
// "histogram" has 17 numbers: steps of staleness 0, 1, ..., 15, and more.
std::string status_json(const ShardStore& store);

}  // namespace lockstep::strategies
