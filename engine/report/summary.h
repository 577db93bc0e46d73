// SPDX-License-Identifier: MIT
// Scalars by step for TensorBoard: an event file per run, in a folder that several runs may share,
// written by the chief.
//
// The file is a list of records: 8 bytes of length (little-endian), 4 of the length's masked
// CRC-32C, the data, 4 of the data's masked CRC-32C (TensorFlow: lib/io/record_writer.h). A record
// is a protobuf message Event (event.proto, summary.proto). The first names the version. The second
// marks the run's first step: a reader then drops what older files of the folder say about this
// step and later ones. Such steps are those of a killed run after its last checkpoint.
//
// Each record is passed whole to the system before the call returns. As with EventLog, a full disk
// is reported once and training continues; an incomplete record is cut off again. Used by one
// thread at a time.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/log.h"

namespace lockstep::engine {

class Summary {
 public:
  struct Scalar {
    std::string_view tag;  // "train/loss"
    double value = 0;      // stored as float32, the format's type
  };

  // Makes the folder if it is missing, and a new file in it. Throws Error(kIo) if it cannot.
  Summary(const std::string& folder, Log log);
  ~Summary();
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;
  const std::string& path() const { return path_; }
  bool whole() const { return !reported_; }  // nothing was lost so far

  // Marks the run's first step; otherwise the first `write` does. Only the first call counts.
  // Neither function throws because of errors of the file.
  void begin(std::int64_t step);
  void write(std::int64_t step, std::span<const Scalar> scalars);
  void write(std::int64_t step, std::initializer_list<Scalar> scalars) {
    write(step, std::span(scalars.begin(), scalars.size()));
  }

 private:
  void begin_event(std::int64_t step);
  void put();  // writes event_ as a record
  std::string path_;
  Log log_;
  int file_ = -1;
  bool begun_ = false;  // the first step is marked
  bool reported_ = false;
  std::int64_t whole_ = 0;              // bytes of whole records
  std::string event_, value_, record_;  // kept, so that a step allocates nothing
};

}  // namespace lockstep::engine
