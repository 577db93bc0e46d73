// SPDX-License-Identifier: MIT
#include "engine/data/near_miss.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <system_error>
#include <utility>

#include "engine/base/brief.h"
#include "engine/base/error.h"

namespace lockstep::engine::data {
namespace {

constexpr std::size_t kMostEntries = 1000, kMostNamed = 6;

using namespace std::string_view_literals;
constexpr std::array<std::pair<std::string_view, const char*>, 13> kKinds{{
    {"\x1f\x8b"sv, "compressed by gzip: inflate it"},
    {"PK\x03\x04"sv, "a zip archive: unpack it"},
    {"BZh"sv, "compressed by bzip2: unpack it; only gzip is read"},
    {"\xfd"
     "7zXZ"sv,
     "compressed by xz: unpack it; only gzip is read"},
    {"\x28\xb5\x2f\xfd"sv, "compressed by zstd: unpack it; only gzip is read"},
    {"7z\xbc\xaf"sv, "a 7z archive: unpack it"},
    {"\x93NUMPY"sv, "a NumPy array, which is not read"},
    {"PAR1"sv, "a Parquet file, which is not read"},
    {"\x89PNG"sv, "an image, and not a data set"},
    {"\xff\xfe"sv, "text in UTF-16: convert it to UTF-8"},
    {"version "sv, "a pointer of Git LFS: fetch the file itself, with git lfs pull"},
    {"<"sv, "a web page or XML, as a failed download leaves: download the file again"},
    {"{\""sv, "JSON, as a failed download leaves: download the file again"},
}};

}  // namespace

std::string known_kind(std::string_view first) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";  // UTF-8's byte order mark
  if (first.starts_with(kMark)) first.remove_prefix(kMark.size());
  const std::string_view text =
      first.substr(std::min(first.find_first_not_of(" \t\r\n"), first.size()));
  for (const auto& [begin, kind] : kKinds) {
    if (first.starts_with(begin) || text.starts_with(begin)) return kind;
  }
  return {};
}

void refuse_known_kind(const std::string& file, std::string_view first) {
  const std::string kind = known_kind(first);
  if (!kind.empty()) fail(Code::kCorrupt, "data: {} is {}", file, kind);
}

void require_folder(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return;
  fail(Code::kIo, "data: {} {}", brief(folder),
       std::filesystem::exists(folder, error)
           ? "is not a folder: name the one that holds the files of the data set"
           : "does not exist");
}

std::string similar_file(const std::filesystem::path& folder,
                         const std::vector<std::string>& words) {
  constexpr int kDeepest = 2;
  std::error_code error;
  std::size_t seen = 0;
  std::string best;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end;
       !error && at != end && seen < kMostEntries; at.increment(error), ++seen) {
    if (at.depth() == kDeepest) at.disable_recursion_pending();
    std::string name = at->path().filename().string();
    std::ranges::transform(name, name.begin(),
                           [](unsigned char c) { return char(std::tolower(c)); });
    const bool fits = std::ranges::all_of(
        words, [&](const std::string& word) { return name.find(word) != std::string::npos; });
    std::error_code ignored;
    if (!fits || !at->is_regular_file(ignored)) continue;
    const std::string found = at->path().lexically_relative(folder).string();
    if (best.empty() || found < best) best = found;  // independent of the system's order
  }
  return best;
}

std::string folder_content(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end;
       !error && at != end && names.size() < kMostEntries; at.increment(error)) {
    names.push_back(at->path().filename().string());
    if (at->is_directory(error)) names.back() += '/';
  }
  if (names.empty()) return "the folder is empty";
  std::ranges::sort(names);
  const std::size_t named = std::min(names.size(), kMostNamed);
  std::string text = fmt::format(
      "the folder holds {}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(named), ", "));
  if (names.size() > named) text += fmt::format(" and {} more", names.size() - named);
  return text;
}

}  // namespace lockstep::engine::data
