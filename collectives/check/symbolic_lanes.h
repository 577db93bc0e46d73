// SPDX-License-Identifier: MIT
// State of a symbolic run (verifier.cpp): its lanes and their messages. These are plain values of
// one run; only one thread uses them.
#pragma once
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "collectives/check/symbolic_memory.h"
#include "collectives/check/vector_clock.h"

namespace lockstep::collectives {

// Represents a message in flight.
struct Message {
  std::size_t count = 0;
  std::optional<DType> wire = {};
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, Value>> pieces;
  VectorClock clock;  // sender's clock plus the read of the source
};

// Connects a lane to another. The n-th message posted matches the n-th receive posted, whatever the
// order of the waits.
struct Wire {
  std::vector<Message*> sent = {};
  std::size_t receives = 0;  // posted receives
};

// Represents a post for which its lane has not waited yet.
struct Post {
  int thread = 0;
  VectorClock clock;           // receive: the poster's clock
  Message* message = nullptr;  // send only
  std::size_t number = 0;      // index on its wire
};

// Holds the execution state of one lane of one rank and stage.
struct Runner {
  int stage = 0, rank = 0, lane = 0;
  int thread = 0;
  std::size_t at = 0;
  bool begun = false;
  VectorClock clock;
  std::map<int, Post> posts;      // indexed by step
  std::vector<int> free_threads;  // from completed messages
};

// Makes all ranks wait for each other at a vendor step.
struct Meeting {
  std::set<Runner*> came;
  bool over = false;
  VectorClock clock;
};

}  // namespace lockstep::collectives
