// SPDX-License-Identifier: MIT
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/idx_file.h"
#include "engine/data/near_miss.h"
#include "engine/data/pixel_images.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace {

using Path = std::filesystem::path;

// Holds the parts of a file's name: "train", "images", "idx3-ubyte".
struct Name {
  std::string part, content, type;
  std::string text() const { return part + "-" + content + "-" + type; }
};

// Returns the file of that name: as published (train-images-idx3-ubyte), as in some archives
// (train-images.idx3-ubyte), or in a folder of either name; each plain or with .gz. If there is
// none, returns a folder of such a name, or an empty path.
Path find_file(const Path& folder, const Name& name, bool in_folders = true) {
  Path other;  // exists, but is no file
  for (const char* separator : {"-", "."}) {
    for (const char* end : {"", ".gz"}) {
      const Path path = folder / (name.part + "-" + name.content + separator + name.type + end);
      std::error_code error;
      const auto kind = std::filesystem::status(path, error).type();
      if (kind == std::filesystem::file_type::not_found || kind == std::filesystem::file_type::none)
        continue;
      if (kind != std::filesystem::file_type::directory) return path;
      if (Path within = in_folders ? find_file(path, name, false) : Path(); !within.empty())
        return within;
      other = path;
    }
  }
  return in_folders ? other : Path();
}

// Returns the likely cause of a missing file, for the end of a message.
std::string perhaps(const Path& folder, const Name& name) {
  // Searches for "image" or "label", because some names have no s.
  std::string near =
      similar_file(folder, {name.part, name.content.substr(0, name.content.size() - 1)});
  if (near.empty()) return folder_content(folder);
  const Path path = folder / near;
  for (const Path& above : {path.parent_path().parent_path(), path.parent_path()}) {
    if (find_file(above, name) == path)
      return fmt::format("{} has it: name that folder", above.string());
  }
  const bool compressed = path.extension() == ".gz";
  return fmt::format("there is {}: if that is meant, rename it to {}{}", near, name.text(),
                     compressed ? ".gz" : "");
}

Path need(const Path& folder, const Name& name) {
  Path found = find_file(folder, name);
  if (found.empty())
    fail(Code::kIo, "data: {} is missing, and so is {}.gz; {}", (folder / name.text()).string(),
         name.text(), perhaps(folder, name));
  return found;
}

Name images_of(const std::string& part) {
  return {part, "images", "idx3-ubyte"};
}
Name labels_of(const std::string& part) {
  return {part, "labels", "idx1-ubyte"};
}

// Reads <folder>/<prefix>-images-idx3-ubyte and <prefix>-labels-idx1-ubyte. All labels must be
// below `classes`; if it is 0, the labels determine it.
std::shared_ptr<const PixelImages> read_set(const Path& folder, const std::string& prefix,
                                            const std::string& name, std::size_t classes) {
  const Path images_path = need(folder, images_of(prefix));
  const Path labels_path = need(folder, labels_of(prefix));
  IdxFile images = read_idx_file(images_path, 3);
  const IdxFile labels = read_idx_file(labels_path, 1);
  const std::size_t count = images.extents[0];
  if (images.bytes.empty()) {
    fail(Code::kCorrupt, "data: {}: extents: {}x{}x{}: no pixels", images_path.string(), count,
         images.extents[1], images.extents[2]);
  }
  if (labels.bytes.size() != count) {
    fail(Code::kCorrupt, "data: {}: count: {} labels for the {} images of {}", labels_path.string(),
         labels.bytes.size(), count, images_path.string());
  }
  const auto largest = std::ranges::max_element(labels.bytes);
  if (classes == 0) classes = std::max<std::size_t>(10, *largest + 1u);
  if (*largest >= classes) {
    fail(Code::kCorrupt, "data: {}: label {} of example {}: should be below {}",
         labels_path.string(), *largest, largest - labels.bytes.begin(), classes);
  }
  PixelImages::Content content;
  content.name = "idx " + name;
  content.shape = {images.extents[1], images.extents[2], 1};
  content.classes = classes;
  content.fingerprint = stream_key(checksum(images.bytes) << 32 | checksum(labels.bytes),
                                   fmt::format("idx {} of {}", count, to_string(content.shape)));
  content.pixels = std::move(images.bytes);
  content.labels.assign(labels.bytes.begin(), labels.bytes.end());
  return std::make_shared<PixelImages>(std::move(content));
}

}  // namespace

Sets idx(const std::string& folder, std::size_t classes) {
  require_folder(folder);
  // "a/digits/" and "a/digits" both have the name digits.
  const Path path = std::filesystem::absolute(folder).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const auto train = read_set(path, "train", name + "/train", classes);
  Sets sets;
  sets.train = train;
  sets.around = train->black();
  sets.test_files = images_of("t10k").text() + " and " + labels_of("t10k").text();
  if (find_file(path, images_of("t10k")).empty() && find_file(path, labels_of("t10k")).empty()) {
    for (const char* word : {"t10k", "test"}) {
      const std::string near = similar_file(path, {word, "image"});
      if (near.empty()) continue;
      sets.warnings.push_back(
          fmt::format("data: {} is not read as test data: they are {} in the folder {}", near,
                      sets.test_files, path.string()));
      break;
    }
    return sets;
  }
  sets.test = read_set(path, "t10k", name + "/test", train->classes());
  if (sets.test->input_shape() != train->input_shape()) {
    fail(Code::kCorrupt, "data: {}: images of t10k are {}, those of train {}", path.string(),
         to_string(sets.test->input_shape()), to_string(train->input_shape()));
  }
  return sets;
}

}  // namespace lockstep::engine::data
