// SPDX-License-Identifier: MIT
// What a symbolic run (verifier.cpp) knows of the lanes that it runs, and of what they send. Plain
// values of one run; one thread.
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

// A message under way.
struct Message {
  std::size_t count = 0;
  std::optional<DType> wire = {};
  std::vector<std::pair<std::pair<std::size_t, std::size_t>, Value>> pieces;
  VectorClock clock;  // what its sender knew, and its own reading
};

// From one lane to another: the nth message posted is the nth that a receive is posted for,
// whatever the order of the waits.
struct Wire {
  std::vector<Message*> sent = {};
  std::size_t receives = 0;  // posted
};

// A post that its lane has not waited for yet.
struct Post {
  int thread = 0;
  VectorClock clock;           // of a receive: what its poster knew
  Message* message = nullptr;  // of a send
  std::size_t number = 0;      // on its wire
};

// One lane of one rank of one stage.
struct Runner {
  int stage = 0, rank = 0, lane = 0;
  int thread = 0;
  std::size_t at = 0;
  bool begun = false;
  VectorClock clock;
  std::map<int, Post> posts;      // by step
  std::vector<int> free_threads;  // of messages that are through
};

// Of all ranks, at a vendor's step.
struct Meeting {
  std::set<Runner*> came;
  bool over = false;
  VectorClock clock;
};

}  // namespace lockstep::collectives
