// SPDX-License-Identifier: MIT
#include "test/strategies/parameter_server/server/small_server.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "engine/runtime/devices.h"

namespace lockstep::test {

using namespace strategies;

std::vector<rpc::Slice> slices_of(std::span<const float> values, std::size_t bytes,
                                  std::size_t offset) {
  std::vector<rpc::Slice> slices;
  const std::size_t all = values.size_bytes(),
                    most = bytes == 0 ? std::max<std::size_t>(all, 1) : bytes;
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  for (std::size_t at = 0; at < all; at += most) {
    const std::size_t size = std::min(most, all - at);
    const auto memory = std::make_shared<std::vector<std::byte>>(offset + size);
    std::memcpy(memory->data() + offset, from + at, size);
    slices.push_back({memory->data() + offset, size, memory});
  }
  return slices;
}

std::vector<float> floats_of(const std::vector<rpc::Slice>& body) {
  std::vector<std::byte> bytes;
  for (const rpc::Slice& slice : body)
    bytes.insert(bytes.end(), slice.data, slice.data + slice.size);
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

ShardSpec whole_shard(const std::string& name, engine::Shape shape) {
  ShardSpec shard;
  shard.name = name;
  shard.shape = shape;
  shard.rows = shape.rank() == 0 ? 1 : shape[0];
  return shard;
}

engine::UpdateRule sgd_rule(double momentum) {
  engine::UpdateRule rule;
  rule.momentum = momentum;
  return rule;
}

engine::UpdateRule adam_rule() {
  engine::UpdateRule rule;
  rule.kind = engine::UpdateKind::kAdam;
  return rule;
}

SmallServer::SmallServer(const JobSpec& s,
                         const std::function<float(std::size_t, std::size_t)>& start)
    : ops(engine::host_devices()[0]->ops(engine::DType::kFloat32, {})),
      spec(s),
      store(*ops),
      sequence(s.policy.workers, 0),
      pulled(s.policy.workers, 0) {
  store.open("job", 1, spec);
  std::vector<ShardRange> parts;
  std::vector<float> values;
  for (std::uint32_t shard = 0; shard < spec.shards.size(); ++shard) {
    const std::size_t elements = spec.shards[shard].elements();
    if (elements > 0) parts.push_back({shard, 0, elements});
    for (std::size_t i = 0; i < elements; ++i) values.push_back(start ? start(shard, i) : 0.0f);
  }
  store.assign_parts("job", 1, parts, slices_of(values));
}

PushOrder SmallServer::order(std::uint32_t worker, std::span<const float> gradient, double rate) {
  PushOrder order;
  order.generation = 1;
  order.worker = worker;
  order.sequence = ++sequence[worker];
  order.step = order.pulled = pulled[worker];
  order.rate = rate;
  order.last = true;
  for (std::uint32_t shard = 0; shard < spec.shards.size(); ++shard) {
    const ShardSpec& here = spec.shards[shard];
    if (!here.sparse && !here.frozen) order.parts.push_back({shard, 0, here.elements()});
  }
  order.body = slices_of(gradient);
  return order;
}

ShardAnswer SmallServer::push(const PushOrder& order) {
  ShardAnswer answer;
  int calls = 0;
  store.push("job", order, nullptr, [&](ShardAnswer a) {
    answer = std::move(a);
    ++calls;
  });
  EXPECT_EQ(calls, 1);
  if (answer.error) throw *answer.error;
  return answer;
}

void SmallServer::pull(std::uint32_t worker) {
  pulled[worker] = job().version();
}

std::vector<float> SmallServer::weights() {
  PullOrder order;
  for (std::uint32_t shard = 0; shard < spec.shards.size(); ++shard)
    if (!spec.shards[shard].sparse)
      order.parts.push_back({shard, 0, spec.shards[shard].elements()});
  std::vector<float> values;
  store.pull("job", order, nullptr, [&](ShardAnswer answer) { values = floats_of(answer.body); });
  return values;
}

std::vector<float> SmallServer::rows(std::uint32_t shard, std::vector<std::uint64_t> numbers) {
  PullOrder order;
  order.rows = ShardRows{shard, std::move(numbers)};
  std::vector<float> values;
  store.pull("job", order, nullptr, [&](ShardAnswer answer) { values = floats_of(answer.body); });
  return values;
}

std::string refused(const std::function<void()>& work, engine::Code code) {
  try {
    work();
  } catch (const engine::Error& error) {
    EXPECT_EQ(engine::name(error.code()), engine::name(code)) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace lockstep::test
