// SPDX-License-Identifier: MIT
#include "strategies/parameter_server/server/shard_service.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"
#include "strategies/parameter_server/rpc/messages.pb.h"
#include "strategies/parameter_server/server/message_values.h"
#include "strategies/parameter_server/server/shard_checkpoint.h"
#include "strategies/parameter_server/server/shard_status.h"

namespace lockstep::strategies {

using engine::Code;
using engine::require;

namespace {

constexpr std::chrono::milliseconds kBetweenDrops{200};

}  // namespace

// Executes one call. Each method replies, or throws before it has replied.
class ShardService::Calls {
 public:
  Calls(ShardService& service, rpc::Message request, CallerPointer caller, rpc::Done done)
      : service_(service),
        store_(service.store_),
        request_(std::move(request)),
        caller_(std::move(caller)),
        done_(std::move(done)) {}

  using Method = void (Calls::*)();
  static Method find(std::string_view name);

 private:
  template <class Head>
  Head head() const {
    Head head;
    parse_head(request_.head, kMostHead, head);
    return head;
  }
  // Throws if the message has a body.
  void no_body() const {
    require(request_.body_bytes() == 0, "{} bytes behind a message that has no arrays",
            request_.body_bytes());
  }

  void open() {
    no_body();
    const auto request = head<OpenRequest>();
    OpenReply answer;
    answer.set_bytes(store_.open(request.container(), request.generation(), spec_of(request)));
    const auto job = store_.job(request.container());
    answer.set_ready(job->ready());
    answer.set_version(job->version());
    done_(reply(answer));
  }
  template <class Head>
  void pull() {
    no_body();
    const auto request = head<Head>();
    store_.pull(request.container(), order_of(request), caller_,
                [done = done_](ShardAnswer answer) { done(pull_reply(std::move(answer))); });
  }
  template <class Head>
  void push() {
    const auto request = head<Head>();
    store_.push(request.container(), order_of(request, std::move(request_.body)), caller_,
                [done = done_](ShardAnswer answer) { done(push_reply(std::move(answer))); });
  }
  void assign() {
    const auto request = head<AssignRequest>();
    AssignReply answer;
    const NamedVariables::How how = how_of(request);
    if (request.generation() > 0) {
      assign_parts(request, answer);
    } else {
      require(request.parts_size() == 0, "parts of a job without its generation");
      store_.assign(request.container(), request.name(), how,
                    value_of(request, std::move(request_.body)));
    }
    done_(reply(answer));
  }
  void assign_parts(const AssignRequest& request, AssignReply& answer) {
    require(request.how() != AssignRequest::ADD, "start values are set, not added");
    require(request.name().empty() && request.shape().empty(),
            "start values are given by parts, not by name and shape");
    const std::vector<ShardRange> parts = parts_of(request);
    if (!request.dtype().empty()) {
      const auto job = store_.job(request.container());
      for (const ShardRange& part : parts) {
        if (part.shard >= job->spec().shards.size()) continue;  // refused below
        const std::string_view dtype = engine::name(job->spec().shards[part.shard].dtype);
        require(request.dtype() == dtype, "shard {} is {}, not {}", part.shard, dtype,
                engine::in_quotes(request.dtype()));
      }
    }
    answer.set_version(
        store_.assign_parts(request.container(), request.generation(), parts, request_.body));
  }
  void read() {
    no_body();
    const auto request = head<ReadRequest>();
    done_(read_reply(store_.read(request.container(), request.name())));
  }
  void reset() {
    no_body();
    const auto request = head<ResetRequest>();
    ResetReply answer;
    answer.set_variables(store_.reset(request.container()));
    done_(reply(answer));
  }
  void save() {
    no_body();
    const auto request = head<SaveRequest>();
    require(request.rank() < request.ranks() && request.ranks() <= 99999,
            "shard {} of {} of a checkpoint", request.rank(), request.ranks());
    apart([request](ShardService& service, const rpc::Done& done) {
      engine::Checkpoints checkpoints(service.storage_, request.folder(), 1, service.log_);
      const SavedShard saved =
          save_shard(service.store_, request.container(), request.generation(), checkpoints,
                     request.step(), int(request.rank()), int(request.ranks()));
      SaveReply answer;
      answer.set_bytes(saved.file.bytes);
      answer.set_crc(saved.file.crc);
      answer.set_version(saved.version);
      done(reply(answer));
    });
  }
  void restore() {
    no_body();
    const auto request = head<RestoreRequest>();
    apart([request](ShardService& service, const rpc::Done& done) {
      engine::Checkpoints checkpoints(service.storage_, request.folder(), 1, service.log_);
      const std::vector<std::string> zero(request.zero().begin(), request.zero().end());
      RestoreReply answer;
      answer.set_version(restore_shard(service.store_, request.container(), request.generation(),
                                       checkpoints, request.step(), zero));
      done(reply(answer));
    });
  }
  void status() {
    no_body();
    head<StatusRequest>();
    StatusReply answer;
    answer.set_json(status_json(store_));
    done_(reply(answer));
  }
  void done() {
    no_body();
    const auto request = head<DoneRequest>();
    // The reply comes first, because the thread that waits for the end may end the server.
    done_(reply(DoneReply()));
    {
      std::scoped_lock lock(service_.mutex_);
      if (!service_.end_) service_.end_ = End{request.why(), request.failed()};
    }
    service_.changed_.notify_all();
  }
  // Runs `work` on the service's own thread, since file access may be slow.
  template <class Work>
  void apart(Work work) {
    service_.work_.add([service = &service_, work = std::move(work), done = done_] {
      rpc::answering(done, [&] { work(*service, done); });
    });
  }

  ShardService& service_;
  ShardStore& store_;
  rpc::Message request_;
  CallerPointer caller_;
  rpc::Done done_;
};

ShardService::Calls::Method ShardService::Calls::find(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, Method>, 12> kMethods{
      {{"Open", &Calls::open},
       {"Pull", &Calls::pull<PullRequest>},
       {"Push", &Calls::push<PushRequest>},
       {"PullRows", &Calls::pull<PullRowsRequest>},
       {"PushRows", &Calls::push<PushRowsRequest>},
       {"Assign", &Calls::assign},
       {"Read", &Calls::read},
       {"Reset", &Calls::reset},
       {"Save", &Calls::save},
       {"Restore", &Calls::restore},
       {"Status", &Calls::status},
       {"Done", &Calls::done}}};
  const auto found = std::find_if(kMethods.begin(), kMethods.end(),
                                  [&](const auto& method) { return method.first == name; });
  require(found != kMethods.end(), "a parameter server has no method {}", engine::in_quotes(name));
  return found->second;
}

ShardService::ShardService(ShardStore& store, engine::Storage& storage, engine::Log log)
    : store_(store), storage_(storage), log_(std::move(log)) {
  sweep();
}

void ShardService::sweep() {
  store_.drop_gone();
  work_.add(engine::Clock::now() + kBetweenDrops, [this] { sweep(); });
}

void ShardService::call(std::string_view method, rpc::Message request,
                        std::shared_ptr<const rpc::Caller> caller, rpc::Done done) {
  rpc::answering(done, [&] {
    const Calls::Method work = Calls::find(method);
    Calls call(*this, std::move(request), std::move(caller), done);
    (call.*work)();
  });
}

std::optional<ShardService::End> ShardService::join(engine::Clock::time_point until) {
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return end_.has_value(); });
  return end_;
}

}  // namespace lockstep::strategies
