// SPDX-License-Identifier: MIT
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/idx_file.h"
#include "engine/data/pixel_images.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace {

using Path = std::filesystem::path;

// The file itself, else the one with .gz; an empty path when neither is there.
Path plain_or_gz(const Path& plain) {
  std::error_code error;
  if (std::filesystem::exists(plain, error)) return plain;
  Path compressed = plain;
  compressed += ".gz";
  return std::filesystem::exists(compressed, error) ? compressed : Path();
}

Path need(const Path& plain) {
  Path found = plain_or_gz(plain);
  if (found.empty())
    fail(Code::kIo, "data: {} is missing, and so is {}.gz", plain.string(),
         plain.filename().string());
  return found;
}

// Reads <folder>/<prefix>-images-idx3-ubyte and <prefix>-labels-idx1-ubyte. `classes` is 0 when the
// labels are to say how many there are; else they must be below it.
std::shared_ptr<const PixelImages> read_set(const Path& folder, const std::string& prefix,
                                            const std::string& name, std::size_t classes) {
  const Path images_path = need(folder / (prefix + "-images-idx3-ubyte"));
  const Path labels_path = need(folder / (prefix + "-labels-idx1-ubyte"));
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
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) {
    fail(Code::kIo, "data: {} is not a folder", folder);
  }
  // "a/digits/" and "a/digits" are both called digits.
  const Path path = std::filesystem::absolute(folder).lexically_normal();
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  const auto train = read_set(path, "train", name + "/train", classes);
  Sets sets;
  sets.train = train;
  sets.around = train->black();
  if (plain_or_gz(path / "t10k-images-idx3-ubyte").empty() &&
      plain_or_gz(path / "t10k-labels-idx1-ubyte").empty()) {
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
