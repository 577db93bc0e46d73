// SPDX-License-Identifier: MIT
// Timelines as a Chrome trace, which chrome://tracing and https://ui.perfetto.dev open. The format:
// "Trace Event Format",
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
//
// A replica is a process of the trace (pid: its rank). Lane 0 is its computing thread, where spans
// nest. Communication in flight takes as many lanes above as it needs, so that no two spans of a
// lane overlap. Times are in microseconds since the first span of all.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/report/timeline.h"

namespace lockstep::engine {

// Returns the events of one replica, one per line, separated by commas. Adds `shift` nanoseconds to
// its times. `replica`: its name for people.
std::string trace_events(const Timeline& timeline, std::int64_t shift, const std::string& replica);
// Returns the whole file: the events of all replicas.
std::string trace_document(const std::vector<std::string>& events);

}  // namespace lockstep::engine
