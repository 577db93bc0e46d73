// SPDX-License-Identifier: MIT
// Times Gloo's all-reduce over its TCP transport on the loopback interface, in place.
//   usage: gloo_all_reduce FILE MIN MAX FACTOR RANK RANKS FOLDER
// rounds.h describes FILE. The ranks find each other through FOLDER, which is initially empty.
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <memory>

#include "bench/peers/rounds.h"

int main(int count, char** words) {
  if (count != 8) return 2;
  const int rank = std::atoi(words[5]), ranks = std::atoi(words[6]);
  gloo::transport::tcp::attr where;
  where.hostname = "127.0.0.1";
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(where);
  gloo::rendezvous::FileStore store(words[7]);
  const auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  context->connectFullMesh(store, device);
  int calls = 0;
  peers::Rounds(rank, ranks, words[1])
      .run(std::strtoul(words[2], nullptr, 10), std::strtoul(words[3], nullptr, 10),
           std::strtoul(words[4], nullptr, 10), [&](float* data, std::size_t elements) {
             gloo::AllreduceOptions options(context);
             options.setOutput(data, elements);
             options.setReduceFunction([](void* to, const void* a, const void* b, std::size_t n) {
               gloo::sum<float>(to, a, b, n);
             });
             options.setTag(std::uint32_t(++calls % 1000));
             gloo::allreduce(options);
           });
}
