// SPDX-License-Identifier: MIT
// For errors about data files: what a file is instead of what it should be, and what else a folder
// holds. Pure but for the file system; any thread.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine::data {

// Returns what the first bytes of a file say that it is, and what to do: "a zip archive: unpack
// it". Empty where they say nothing.
std::string known_kind(std::string_view first);

// Throws Error(kCorrupt) that names the file and its kind, where its first bytes have a known one.
void refuse_known_kind(const std::string& file, std::string_view first);

// Returns the path, from the folder on, of a file in it or at most two folders below whose name has
// all the words, in capitals or not. Empty where there is none among the first thousand.
std::string similar_file(const std::filesystem::path& folder,
                         const std::vector<std::string>& words);

// Returns the names in a folder, a few of them: "the folder holds a.zip, b.csv
// and 7 more".
std::string folder_content(const std::filesystem::path& folder);

}  // namespace lockstep::engine::data
