// SPDX-License-Identifier: MIT
// Scalars by step for TensorBoard: an event file of its own for each run, in a folder that several
// runs may share, written by the chief.
//
// The file is a list of records: 8 bytes of length (little-endian), 4 of the length's masked
// CRC-32C, the data, 4 of the data's masked CRC-32C (TensorFlow: lib/io/record_writer.h). A record
// is a protobuf message Event (event.proto, summary.proto). The first names the version; the second
// is the mark of the run's first step, behind which a reader forgets what older files of the folder
// say of this step and later ones: what a run did that was killed after its last checkpoint.
//
// Each record is handed to the system whole before the call returns. As with EventLog, a full disk
// is reported once and training goes on; what could not be written whole is cut off again. One
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
    double value = 0;      // stored as float32, which is what the format has
  };

  // Makes the folder where it is missing, and a new file in it. Error(kIo) where it cannot.
  Summary(const std::string& folder, Log log);
  ~Summary();
  Summary(const Summary&) = delete;
  Summary& operator=(const Summary&) = delete;
  const std::string& path() const { return path_; }
  bool whole() const { return !reported_; }  // nothing was lost so far

  // Marks the run's first step; without it the first `write` does. Of several calls the first
  // counts. Neither throws for what goes wrong with the file.
  void begin(std::int64_t step);
  void write(std::int64_t step, std::span<const Scalar> scalars);
  void write(std::int64_t step, std::initializer_list<Scalar> scalars) {
    write(step, std::span(scalars.begin(), scalars.size()));
  }

 private:
  void begin_event(std::int64_t step);
  void put();  // event_ as a record
  std::string path_;
  Log log_;
  int file_ = -1;
  bool begun_ = false;  // the mark of the first step is written
  bool reported_ = false;
  std::int64_t whole_ = 0;              // bytes of whole records
  std::string event_, value_, record_;  // kept, so that a step allocates nothing
};

}  // namespace lockstep::engine
