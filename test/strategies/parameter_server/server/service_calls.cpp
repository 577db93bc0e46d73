// SPDX-License-Identifier: MIT
#include "test/strategies/parameter_server/server/service_calls.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep::test {

using namespace strategies;

rpc::Reply call(rpc::Service& service, const std::string& method, rpc::Message request,
                CallerPointer caller) {
  const auto promise = std::make_shared<std::promise<rpc::Reply>>();
  auto reply = promise->get_future();
  if (!caller) caller = std::make_shared<TestCaller>();
  service.call(method, std::move(request), caller,
               [promise](rpc::Reply r) { promise->set_value(std::move(r)); });
  engine::invariant(reply.wait_for(std::chrono::seconds(10)) == std::future_status::ready,
                    "no reply in ten seconds");
  return reply.get();
}

rpc::Message message_of(const google::protobuf::MessageLite& head, std::vector<rpc::Slice> body) {
  return {head.SerializeAsString(), std::move(body)};
}

OpenRequest small_job_message() {
  OpenRequest open;
  open.set_container("job");
  open.set_generation(1);
  Shard& w = *open.add_shards();
  w.set_name("w");
  w.add_shape(4);
  w.add_shape(2);
  w.set_rows(4);
  w.set_dtype("float32");
  Shard& table = *open.add_shards();
  table.set_name("table");
  table.add_shape(10);
  table.add_shape(3);
  table.set_first_row(2);
  table.set_rows(6);
  table.set_dtype("float32");
  table.set_sparse(true);
  open.mutable_rule()->set_kind("adam");
  open.mutable_rule()->set_beta1(0.9);
  open.mutable_rule()->set_beta2(0.999);
  open.mutable_rule()->set_epsilon(1e-8);
  open.mutable_policy()->set_workers(2);
  return open;
}

void open_small_job(rpc::Service& service) {
  ask<OpenReply>(service, "Open", small_job_message());
  AssignRequest values;
  values.set_container("job");
  values.set_generation(1);
  values.set_dtype("float32");
  for (const auto& [shard, elements] : {std::pair{0, 8}, {1, 18}}) {
    Part& part = *values.add_parts();
    part.set_shard(std::uint32_t(shard));
    part.set_end(std::uint64_t(elements));
  }
  ask<AssignReply>(service, "Assign", values, std::vector<float>(26, 1.0f));
}

}  // namespace lockstep::test
