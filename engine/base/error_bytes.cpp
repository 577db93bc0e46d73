// SPDX-License-Identifier: MIT
#include "engine/base/error_bytes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::engine {
namespace {

// Precedes the ranks (an int32 each) and the text of a serialized error.
struct ErrorHead {
  std::uint8_t code, located, option, unused;
  std::uint32_t ranks;
};
static_assert(sizeof(ErrorHead) == 8);

}  // namespace

std::size_t write_error(const Error& error, std::span<std::byte> to) noexcept {
  invariant(to.size() >= kLeastErrorBytes, "an error needs more bytes");
  const std::size_t most_ranks = (to.size() / 4 - sizeof(ErrorHead)) / sizeof(std::int32_t);
  const std::size_t ranks = std::min(error.ranks().size(), most_ranks);
  const ErrorHead head{.code = std::uint8_t(error.code()),
                       .located = error.located(),
                       .option = std::uint8_t(error.option()),
                       .unused = 0,
                       .ranks = std::uint32_t(ranks)};
  std::memcpy(to.data(), &head, sizeof head);
  std::size_t end = sizeof head;
  for (std::size_t i = 0; i < ranks; ++i, end += sizeof(std::int32_t)) {
    const auto rank = std::int32_t(error.ranks()[i]);
    std::memcpy(to.data() + end, &rank, sizeof rank);
  }
  const std::size_t length = std::min(std::strlen(error.what()), to.size() - end);
  std::memcpy(to.data() + end, error.what(), length);
  return end + length;
}

std::optional<Error> read_error(std::span<const std::byte> from) {
  ErrorHead head{};
  if (from.size() < sizeof head) return {};
  std::memcpy(&head, from.data(), sizeof head);
  const std::size_t text = sizeof head + head.ranks * sizeof(std::int32_t);
  if (head.code > std::uint8_t(Code::kAborted) || head.located > 1 ||
      head.option > std::uint8_t(kLastOption) || from.size() < text)
    return {};
  std::vector<int> ranks;
  for (std::size_t i = 0; i < head.ranks; ++i) {
    std::int32_t rank = 0;
    std::memcpy(&rank, from.data() + sizeof head + i * sizeof rank, sizeof rank);
    if (rank < 0) return {};
    ranks.push_back(rank);
  }
  return Error(Code(head.code),
               std::string(reinterpret_cast<const char*>(from.data()) + text, from.size() - text),
               std::move(ranks), head.located != 0)
      .about(Option(head.option));
}

std::string to_bytes(const Error& error) {
  std::array<std::byte, 4096> bytes;
  const std::size_t count = write_error(error, bytes);
  return {reinterpret_cast<const char*>(bytes.data()), count};
}

std::optional<Error> read_error(std::string_view from) {
  return read_error(std::as_bytes(std::span(from)));
}

}  // namespace lockstep::engine
