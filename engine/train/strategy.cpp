// SPDX-License-Identifier: MIT
#include "engine/train/strategy.h"

#include "engine/checkpoint/checkpoint.h"

namespace lockstep::engine {

Work take_batch(const WorkSpec& work, std::int64_t step, DataPosition& position) {
  Work batch;
  batch.step = step;
  batch.epoch = position.epoch;
  batch.local_batch = next_batch(position, work.examples, work.global_batch);
  batch.global_batch = batch.local_batch.size();
  batch.after = position = after_batch(position, work.examples, work.global_batch);
  return batch;
}

Traffic& Traffic::operator+=(const Traffic& other) {
  bytes_pulled += other.bytes_pulled;
  bytes_pushed += other.bytes_pushed;
  rows_pulled += other.rows_pulled;
  rows_pushed += other.rows_pushed;
  return *this;
}

Traffic Traffic::operator-(const Traffic& before) const {
  return {bytes_pulled - before.bytes_pulled, bytes_pushed - before.bytes_pushed,
          rows_pulled - before.rows_pulled, rows_pushed - before.rows_pushed};
}

std::vector<Shard> Strategy::save(Replica& replica, Checkpoints& checkpoints, std::int64_t step,
                                  std::string_view what) {
  const Shard mine =
      checkpoints.write_shard(step, replica.rank, membership().size, pieces_to_save(replica));
  const double numbers[] = {double(mine.bytes), double(mine.crc)};
  const std::vector<double> all = gather(replica, numbers, what);
  std::vector<Shard> shards;
  for (std::size_t i = 0; i < all.size(); i += 2)
    shards.push_back({std::uint64_t(all[i]), std::uint32_t(all[i + 1])});
  return shards;
}

void Strategy::restore(Replica& replica, Checkpoints& checkpoints, std::int64_t step,
                       const std::vector<std::string>& fresh) {
  checkpoints.restore(step, pieces_to_restore(replica), fresh);
}

}  // namespace lockstep::engine
