// SPDX-License-Identifier: MIT
#include <fmt/core.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/random.h"
#include "engine/data/cifar_file.h"
#include "engine/data/near_miss.h"
#include "engine/data/pixel_images.h"
#include "engine/data/sets.h"

namespace lockstep::engine::data {
namespace {

std::shared_ptr<const PixelImages> images(CifarFile file, const std::string& name) {
  PixelImages::Content content;
  content.name = "cifar10 " + name;
  content.shape = {kCifarSide, kCifarSide, kCifarChannels};
  content.classes = kCifarClasses;
  content.fingerprint = stream_key(checksum(file.pixels) << 32 | checksum(file.labels),
                                   fmt::format("cifar10 {}", file.labels.size()));
  content.pixels = std::move(file.pixels);
  content.labels.assign(file.labels.begin(), file.labels.end());
  // These are the statistics of v / 255 per channel, over all pixels of the 50,000 training images.
  content.means = {0.4914, 0.4822, 0.4465};
  content.deviations = {0.2470, 0.2435, 0.2616};
  return std::make_shared<PixelImages>(std::move(content));
}

}  // namespace

Sets cifar10(const std::string& folder) {
  require_folder(folder);
  const auto path = std::filesystem::absolute(folder).lexically_normal();
  const auto place = find_cifar10(path);
  if (place.empty()) {
    fail(Code::kIo, "data: {} is missing, and so is cifar-10-batches-bin beside it; {}",
         (path / "data_batch_1.bin").string(), folder_content(path));
  }
  const std::string name = (path.has_filename() ? path : path.parent_path()).filename().string();
  std::string fewer;  // the short files with their records
  const auto read = [&](const std::string& file, CifarFile& content) {
    const std::uint64_t records = read_cifar_file(place / file, content);
    if (records < kCifarRecords)
      fewer += fmt::format("{}{} {}", fewer.empty() ? "" : ", ", file, records);
  };
  CifarFile train;
  for (int number = 1; number <= 5; ++number) read(fmt::format("data_batch_{}.bin", number), train);
  Sets sets;
  sets.test_files = "test_batch.bin";
  sets.train = images(std::move(train), name + "/train");
  std::error_code error;
  if (std::filesystem::exists(place / "test_batch.bin", error)) {
    CifarFile test;
    read("test_batch.bin", test);
    sets.test = images(std::move(test), name + "/test");
  }
  if (!fewer.empty())
    sets.warnings.push_back(
        fmt::format("data: {} holds less than CIFAR-10, of which each file has {} records: {}",
                    place.string(), kCifarRecords, fewer));
  return sets;
}

}  // namespace lockstep::engine::data
