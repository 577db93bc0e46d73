// SPDX-License-Identifier: MIT
// Explanations for errors about data files: what a file really is, and what else a folder holds.
// Pure except for the file system; thread-safe.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine::data {

// Returns what a file is by its first bytes, and what to do: "a zip archive: unpack it". Empty if
// they are not known.
std::string known_kind(std::string_view first);

// Throws Error(kCorrupt) that names the file and its kind if its first bytes have a known one.
void refuse_known_kind(const std::string& file, std::string_view first);

// Throws Error(kIo) unless there is such a folder of data.
void require_folder(const std::string& folder);

// Returns the path, relative to the folder, of a file whose name has all the words, ignoring case.
// Searches the folder and two levels below it. Empty if there is none among the first thousand
// entries.
std::string similar_file(const std::filesystem::path& folder,
                         const std::vector<std::string>& words);

// Returns a text with some of the names in a folder: "the folder holds a.zip, b.csv and 7 more".
std::string folder_content(const std::filesystem::path& folder);

}  // namespace lockstep::engine::data
