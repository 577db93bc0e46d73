// SPDX-License-Identifier: MIT
#include "engine/base/log.h"

#include <fmt/chrono.h>
#include <spdlog/formatter.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <unistd.h>

#include <iterator>
#include <memory>
#include <mutex>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

spdlog::level::level_enum spdlog_level(Log::Level level) {
  switch (level) {
    case Log::Level::kDebug:
      return spdlog::level::debug;
    case Log::Level::kInfo:
      return spdlog::level::info;
    case Log::Level::kWarning:
      return spdlog::level::warn;
    case Log::Level::kError:
      return spdlog::level::err;
  }
  broken("a log level that does not exist");
}

Log::Level level_of(spdlog::level::level_enum level) {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug:
      return Log::Level::kDebug;
    case spdlog::level::info:
      return Log::Level::kInfo;
    case spdlog::level::warn:
      return Log::Level::kWarning;
    default:
      return Log::Level::kError;
  }
}

// Passes each line to a function, under the sink's lock.
class FunctionSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FunctionSink(Log::Sink function) : function_(std::move(function)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    function_(level_of(message.level), {message.payload.data(), message.payload.size()});
  }
  void flush_() override {}
  Log::Sink function_;
};

// Prefixes warnings and errors with date and level. On a terminal, first erases the line of
// progress.
class LineFormatter final : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& to) override {
    auto end = std::back_inserter(to);
    if (terminal_) fmt::format_to(end, "\r\033[K");
    if (message.level >= spdlog::level::warn) {
      message.color_range_start = to.size();
      fmt::format_to(end, "{:%Y-%m-%d %H:%M:%S} {}: ",
                     fmt::localtime(spdlog::log_clock::to_time_t(message.time)),
                     message.level == spdlog::level::warn ? "warning" : "error");
      message.color_range_end = to.size();
    }
    to.append(message.payload.begin(), message.payload.end());
    to.push_back('\n');
  }
  std::unique_ptr<formatter> clone() const override {
    return std::make_unique<LineFormatter>(*this);
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

// Returns a sink for standard error with colors on a terminal.
spdlog::sink_ptr standard_error() {
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(spdlog::color_mode::automatic);
  sink->set_formatter(std::make_unique<LineFormatter>());
  return sink;
}

}  // namespace

// The logger is private: it is not in spdlog's global registry.
struct Log::Shared {
  spdlog::logger logger;
};

Log::Log(std::string speaker, Level least, Sink sink) : speaker_(std::move(speaker)) {
  spdlog::sink_ptr target;
  if (sink) {
    target = std::make_shared<FunctionSink>(std::move(sink));
  } else {
    target = standard_error();
  }
  shared_ = std::make_shared<Shared>(spdlog::logger("lockstep", std::move(target)));
  shared_->logger.set_level(spdlog_level(least));
  shared_->logger.flush_on(spdlog::level::debug);
}

Log Log::as(std::string speaker) const {
  Log other = *this;
  other.speaker_ = std::move(speaker);
  return other;
}

void Log::write(Level level, const std::string& text) const {
  const auto to = spdlog_level(level);
  if (!shared_->logger.should_log(to)) return;
  if (speaker_.empty()) {
    shared_->logger.log(to, spdlog::string_view_t(text));
  } else {
    shared_->logger.log(to, spdlog::string_view_t(speaker_ + ": " + text));
  }
}

}  // namespace lockstep::engine
