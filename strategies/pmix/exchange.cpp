// SPDX-License-Identifier: MIT
#include "strategies/pmix/exchange.h"

#include <pmix.h>
#include <pmix_version.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>

namespace lockstep::strategies::pmix {
namespace {

using engine::Clock;
using engine::Code;
using engine::require;

constexpr std::size_t kMostValue = std::size_t(64) << 10;
constexpr std::chrono::milliseconds kPause{20};  // interval of requests for missing texts

std::string said(pmix_status_t status) {
  return PMIx_Error_string(status);
}

void require_success(pmix_status_t status, const char* what) {
  if (status != PMIX_SUCCESS) engine::fail(Code::kIo, "PMIx failed to {}: {}", what, said(status));
}

// Owns a PMIx value, which owns memory.
struct Value {
  Value() { PMIX_VALUE_CONSTRUCT(&value); }
  ~Value() { PMIX_VALUE_DESTRUCT(&value); }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;
  pmix_value_t value;
};

// Holds one request for a rank's text. PMIx shares it, since it may answer after the wait has
// ended.
struct Question {
  std::mutex mutex = {};
  std::condition_variable answered = {};
  bool over = true;  // no request is pending
  std::optional<std::string> text = {};
  pmix_status_t status = PMIX_SUCCESS;
};

using Asked = std::shared_ptr<Question>;

// Stores PMIx's answer; runs on PMIx's thread. `kept`: a copy of the pointer, made for this answer.
void take_answer(pmix_status_t status, pmix_value_t* value, void* kept) {
  const std::unique_ptr<Asked> question(static_cast<Asked*>(kept));
  {
    const std::scoped_lock lock((*question)->mutex);
    (*question)->over = true;
    (*question)->status = status;
    if (status == PMIX_SUCCESS && value != nullptr && value->type == PMIX_STRING &&
        value->data.string != nullptr)
      (*question)->text = value->data.string;
  }
  (*question)->answered.notify_all();
}

class Joined : public Exchange {
 public:
  Joined() {
    require_success(PMIx_Init(&me_, nullptr, 0), "join the job");
    try {
      size_ = int(number(PMIX_JOB_SIZE).value_or(1));
      host_size_ = int(number(PMIX_LOCAL_SIZE).value_or(1));
    } catch (...) {
      PMIx_Finalize(nullptr, 0);
      throw;
    }
  }
  ~Joined() override { PMIx_Finalize(nullptr, 0); }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

  int rank() const override { return int(me_.rank); }
  int size() const override { return size_; }
  int host_size() const override { return host_size_; }

  std::vector<std::string> all(const std::string& name, const std::string& mine,
                               Clock::time_point deadline) override {
    require(!mine.empty() && mine.size() <= kMostValue,
            "a text of {} bytes for the other processes: it has from 1 to {}", mine.size(),
            kMostValue);
    require(mine.find('\0') == std::string::npos, "a text for the other processes has no zeros");
    const std::string key = "lockstep." + name;
    require(key.size() < PMIX_MAX_KEYLEN, "'{}' is too long a name", name);
    put(key, mine);
    std::vector<Asked> questions;
    for (int rank = 0; rank < size_; ++rank) questions.push_back(std::make_shared<Question>());
    while (!came(questions, deadline)) {
      const auto now = Clock::now();
      if (now >= deadline) fail_missing(name, questions);
      for (int rank = 0; rank < size_; ++rank) ask(key, rank, questions[std::size_t(rank)]);
    }
    std::vector<std::string> texts;
    for (const Asked& question : questions) {
      const std::scoped_lock lock(question->mutex);
      texts.push_back(*question->text);
    }
    return texts;
  }

 private:
  std::optional<std::uint32_t> number(const char* key) const {
    pmix_proc_t job = me_;
    job.rank = PMIX_RANK_WILDCARD;
    pmix_value_t* value = nullptr;
    if (PMIx_Get(&job, key, nullptr, 0, &value) != PMIX_SUCCESS || value == nullptr)
      return std::nullopt;
    std::optional<std::uint32_t> result;
    if (value->type == PMIX_UINT32) result = value->data.uint32;
    PMIX_VALUE_RELEASE(value);
    return result;
  }

  static void put(const std::string& key, const std::string& text) {
    Value value;
    value.value.type = PMIX_STRING;
    value.value.data.string = strdup(text.c_str());
    require_success(PMIx_Put(PMIX_GLOBAL, key.c_str(), &value.value), "put a text");
    require_success(PMIx_Commit(), "put a text");
  }

  // Requests a rank's text unless it has arrived or a request is pending.
  void ask(const std::string& key, int rank, const Asked& question) {
    {
      const std::scoped_lock lock(question->mutex);
      if (question->text || !question->over) return;
      question->over = false;
    }
    pmix_proc_t peer = me_;
    peer.rank = pmix_rank_t(rank);
    auto kept = std::make_unique<Asked>(question);
    const pmix_status_t status =
        PMIx_Get_nb(&peer, key.c_str(), nullptr, 0, take_answer, kept.get());
    if (status == PMIX_SUCCESS) {
      kept.release();
    } else {
      const std::scoped_lock lock(question->mutex);
      question->over = true;
      question->status = status;
    }
  }

  // Waits for at most kPause; returns whether all texts have arrived.
  static bool came(const std::vector<Asked>& questions, Clock::time_point deadline) {
    const auto until = std::min(deadline, Clock::now() + kPause);
    bool all = true;
    for (const Asked& question : questions) {
      std::unique_lock lock(question->mutex);
      all &= question->answered.wait_until(lock, until, [&] { return question->text.has_value(); });
    }
    return all;
  }

  [[noreturn]] void fail_missing(const std::string& name,
                                 const std::vector<Asked>& questions) const {
    std::string missing, why;
    for (std::size_t rank = 0; rank < questions.size(); ++rank) {
      const std::scoped_lock lock(questions[rank]->mutex);
      if (questions[rank]->text) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", rank);
      if (questions[rank]->status != PMIX_SUCCESS) why = said(questions[rank]->status);
    }
    engine::fail(Code::kTimeout, "rank {} of {} waited for the {} of all ranks; missing: {} {}{}",
                 rank(), size_, name, missing.find(',') == missing.npos ? "rank" : "ranks", missing,
                 why.empty() ? "" : " (" + why + ")");
  }

  pmix_proc_t me_{};
  int size_ = 1, host_size_ = 1;
};

}  // namespace

bool available() {
  return true;
}

std::string version() {
  return fmt::format("{}.{}.{}", PMIX_VERSION_MAJOR, PMIX_VERSION_MINOR, PMIX_VERSION_RELEASE);
}

std::unique_ptr<Exchange> join() {
  // PMIx would create a job of one process if there were no launcher.
  require(std::getenv("PMIX_NAMESPACE") != nullptr,
          "no launcher that speaks PMIx (mpirun) started this process: start it by mpirun, or "
          "describe the cluster by TF_CONFIG");
  return std::make_unique<Joined>();
}

}  // namespace lockstep::strategies::pmix
