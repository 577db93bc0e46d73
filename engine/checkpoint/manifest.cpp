// SPDX-License-Identifier: MIT
#include "engine/checkpoint/manifest.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "engine/base/brief.h"
#include "engine/base/error.h"
#include "engine/checkpoint/safetensors.h"

namespace lockstep::engine {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCheckpointFormat = "lockstep checkpoint";
// The first line is kHead, the checksum as 8 hexadecimal digits, and kNeck.
constexpr std::string_view kHead = "{\"crc32\": \"";
constexpr std::string_view kNeck = "\",\n";
constexpr std::size_t kFirstLine = kHead.size() + 8 + kNeck.size();
// The limits of depth and number of values keep memory below a few hundred MB.
constexpr int kMaxDepth = 8;
constexpr std::size_t kMaxValues = 4'000'000;

std::string hex_of(std::uint32_t crc) {
  return fmt::format("{:08x}", crc);
}

// Reads exactly the lowercase hexadecimal digits of a T, so each number has one spelling.
template <class T>
std::optional<T> from_hex(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  const bool lower =
      std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'F'; });
  if (error != std::errc() || end != text.data() + text.size() || !lower) return std::nullopt;
  if (text.size() != 2 * sizeof(T)) return std::nullopt;
  return value;
}

std::uint32_t crc_of(std::string_view text) {
  return std::uint32_t(crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size()));
}

Json shape_json(const Shape& shape) {
  Json list = Json::array();
  for (std::size_t i = 0; i < shape.rank(); ++i) list.push_back(shape[i]);
  return list;
}

Json state_json(const RunState& state) {
  return {
      {"step", state.step},
      {"steps", state.steps},
      {"position", {{"epoch", state.position.epoch}, {"example", state.position.example}}},
      {"seed", state.seed},
      {"batch", state.global_batch},
      {"dataset", state.dataset},
      {"dataset_fingerprint", fmt::format("{:016x}", state.dataset_fingerprint)},
      {"graph", state.graph},
      {"model", state.model},
      {"optimizer", state.optimizer},
      {"strategy", state.strategy},
      {"replicas", state.replicas},
      {"plan", state.plan},
      {"notes", state.notes},
  };
}

Json shards_json(const std::vector<Shard>& shards) {
  Json list = Json::array();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    list.push_back({{"file", shard_name(int(i), int(shards.size()))},
                    {"bytes", shards[i].bytes},
                    {"crc32", hex_of(shards[i].crc)}});
  }
  return list;
}

Json arrays_json(const Manifest& manifest) {
  const int shards = int(manifest.shards.size());
  Json list = Json::array();
  for (const Manifest::Array& array : manifest.arrays) {
    Json pieces = Json::array();
    for (const Manifest::Part& part : array.parts) {
      pieces.push_back({{"file", shard_name(part.shard, shards)},
                        {"key", part.key},
                        {"begin", part.range.begin},
                        {"end", part.range.end}});
    }
    list.push_back({{"name", array.name},
                    {"dtype", name(array.dtype)},
                    {"shape", shape_json(array.shape)},
                    {"pieces", std::move(pieces)}});
  }
  return list;
}

// Reads one object of the manifest field by field; `where` is its location in the manifest.
class Fields {
 public:
  Fields(const Json& object, std::string where, const std::string& path)
      : object_(object), where_(std::move(where)), path_(path) {
    if (!object.is_object()) corrupt(where_, "is not an object");
  }

  template <class T>
  T integer(const char* key) const {
    const Json& value = at(key);
    if (value.is_number_unsigned()) {
      const auto number = value.get<std::uint64_t>();
      if (number <= std::uint64_t(std::numeric_limits<T>::max())) return T(number);
    } else if (value.is_number_integer() && std::numeric_limits<T>::is_signed) {
      const auto number = value.get<std::int64_t>();
      if (number >= std::int64_t(std::numeric_limits<T>::min())) return T(number);
    }
    corrupt(name_of(key), "is not a number that fits");
  }

  std::string text(const char* key) const {
    const Json& value = at(key);
    if (!value.is_string()) corrupt(name_of(key), "is not text");
    return value.get<std::string>();
  }

  template <class T>
  T hex(const char* key) const {
    const auto value = from_hex<T>(text(key));
    if (!value) corrupt(name_of(key), fmt::format("is not {} hexadecimal digits", 2 * sizeof(T)));
    return *value;
  }

  Fields object(const char* key) const { return Fields(at(key), name_of(key), path_); }

  // Calls `body(index, element)` for each element of a list.
  template <class Body>
  void each(const char* key, Body&& body) const {
    const Json& list = at(key);
    if (!list.is_array()) corrupt(name_of(key), "is not a list");
    for (std::size_t i = 0; i < list.size(); ++i) body(i, list[i]);
  }
  template <class Body>
  void each_object(const char* key, Body&& body) const {
    each(key, [&](std::size_t i, const Json& element) {
      body(Fields(element, fmt::format("{}[{}]", name_of(key), i), path_));
    });
  }

  std::map<std::string, std::string> texts(const char* key) const {
    std::map<std::string, std::string> result;
    if (!at(key).is_object()) corrupt(name_of(key), "is not an object");
    for (const auto& [field, value] : at(key).items()) {
      if (!value.is_string()) corrupt(name_of(key), "holds more than text");
      result[field] = value.template get<std::string>();
    }
    return result;
  }

  [[noreturn]] void corrupt(const std::string& what, std::string_view reason) const {
    fail(Code::kCorrupt, "{}: {} {}", path_, what.empty() ? "the manifest" : what, reason);
  }
  [[noreturn]] void wrong(const char* key, std::string_view reason) const {
    corrupt(name_of(key), reason);
  }

 private:
  std::string name_of(const char* key) const { return where_.empty() ? key : where_ + "." + key; }
  const Json& at(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end()) corrupt(name_of(key), "is missing");
    return *found;
  }

  const Json& object_;
  std::string where_;
  const std::string& path_;
};

RunState read_state(const Fields& fields) {
  RunState state;
  state.step = fields.integer<std::int64_t>("step");
  state.steps = fields.integer<std::int64_t>("steps");
  const Fields position = fields.object("position");
  state.position.epoch = position.integer<std::int64_t>("epoch");
  state.position.example = position.integer<std::uint64_t>("example");
  state.seed = fields.integer<std::uint64_t>("seed");
  state.global_batch = fields.integer<std::size_t>("batch");
  state.dataset = fields.text("dataset");
  state.dataset_fingerprint = fields.hex<std::uint64_t>("dataset_fingerprint");
  state.graph = fields.text("graph");
  state.model = fields.text("model");
  state.optimizer = fields.text("optimizer");
  state.strategy = fields.text("strategy");
  state.replicas = fields.integer<int>("replicas");
  state.plan = fields.text("plan");
  state.notes = fields.texts("notes");
  return state;
}

Shape shape_field(const Fields& fields) {
  Shape shape;
  std::size_t elements = 8;  // no product of extents may overflow, bytes included
  fields.each("shape", [&](std::size_t i, const Json& extent) {
    if (i == Shape::kMaxRank) fields.wrong("shape", "has too many extents");
    if (!extent.is_number_unsigned()) fields.wrong("shape", "has an extent that is no number");
    shape.append(extent.get<std::size_t>());
    if (__builtin_mul_overflow(elements, shape[i], &elements)) {
      fields.wrong("shape", "is too large");
    }
  });
  return shape;
}

// Returns the number of the shard with this file name. Names of any other form never become paths.
int read_shard(const Fields& fields, std::size_t shards) {
  const std::string file = fields.text("file");
  int shard = -1;
  if (file.size() > 11) std::from_chars(file.data() + 6, file.data() + 11, shard);
  if (shard < 0 || std::size_t(shard) >= shards || file != shard_name(shard, int(shards))) {
    fields.wrong("file", fmt::format("is {}, not one of its {} shards", in_quotes(file), shards));
  }
  return shard;
}

Manifest::Array read_array(const Fields& fields, std::size_t shards) {
  Manifest::Array array;
  array.name = fields.text("name");
  try {
    array.dtype = dtype_of(fields.text("dtype"));
  } catch (const Error& error) {
    if (error.code() == Code::kCorrupt) throw;
    fields.wrong("dtype", error.what());
  }
  array.shape = shape_field(fields);
  fields.each_object("pieces", [&](const Fields& piece) {
    array.parts.push_back(
        {read_shard(piece, shards),
         piece.text("key"),
         {piece.integer<std::size_t>("begin"), piece.integer<std::size_t>("end")}});
  });
  const std::string fault = cover_fault(array);
  if (!fault.empty())
    fields.wrong("pieces", fmt::format("of {}: {}", in_quotes(array.name), fault));
  return array;
}

// Parses with limits on depth and number of values.
Json parse_bounded(std::string_view text, const std::string& path) {
  std::size_t values = 0;
  const auto bounds = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth || ++values > kMaxValues) {
      fail(Code::kCorrupt, "{}: too deep or too many values", path);
    }
    return true;
  };
  try {
    return Json::parse(text, bounds);
  } catch (const Json::exception& error) {
    fail(Code::kCorrupt, "{}: not JSON: {}", path, reason_of(error));
  }
}

}  // namespace

std::string shard_name(int shard, int shards) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", shard, shards);
}

std::string cover_fault(Manifest::Array& array) {
  const std::size_t elements = array.shape.elements();
  std::sort(array.parts.begin(), array.parts.end(),
            [](const auto& a, const auto& b) { return a.range.begin < b.range.begin; });
  std::size_t covered = 0;
  for (const Manifest::Part& part : array.parts) {
    const auto [begin, end] = part.range;
    if (begin > end || end > elements) {
      return fmt::format("elements {} to {} are not within its {}", begin, end, elements);
    }
    if (begin > covered) return fmt::format("elements {} to {} are in no shard", covered, begin);
    if (begin < covered) return fmt::format("elements {} to {} are there twice", begin, covered);
    covered = end;
  }
  if (covered != elements) {
    return fmt::format("elements {} to {} are in no shard", covered, elements);
  }
  return array.parts.empty() ? "it is in no shard" : "";
}

std::string manifest_text(const Manifest& manifest) {
  std::string body;
  try {
    body = Json{{"format", kCheckpointFormat},
                {"version", kManifestVersion},
                {"state", state_json(manifest.state)},
                {"shards", shards_json(manifest.shards)},
                {"arrays", arrays_json(manifest)}}
               .dump(1);
  } catch (const Json::exception& error) {
    fail(Code::kInvalid, "a text of the run's state is not UTF-8: {}", reason_of(error));
  }
  body.erase(0, std::string_view("{\n").size());
  body += '\n';
  return fmt::format("{}{}{}{}", kHead, hex_of(crc_of(body)), kNeck, body);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const auto crc =
      from_hex<std::uint32_t>(text.size() < kFirstLine ? "" : text.substr(kHead.size(), 8));
  if (!crc || !text.starts_with(kHead) || text.substr(kHead.size() + 8, kNeck.size()) != kNeck) {
    fail(Code::kCorrupt, "{}: its first line is not the checksum of the rest", path);
  }
  if (crc_of(text.substr(kFirstLine)) != *crc) {
    fail(Code::kCorrupt, "{}: its checksum is wrong: it was damaged or changed by hand", path);
  }
  const Json json = parse_bounded(text, path);
  const Fields fields(json, "", path);
  if (fields.text("format") != kCheckpointFormat)
    fields.wrong("format", "is not that of a checkpoint");
  const int version = fields.integer<int>("version");
  if (version > kManifestVersion) {
    fail(
        Code::kInvalid,
        "{}: format version {} is newer than this lockstep, which reads up to {}; use the one that "
        "wrote it",
        path, version, kManifestVersion);
  }
  if (version < 1) fields.wrong("version", "is not one that ever was");
  Manifest manifest;
  manifest.state = read_state(fields.object("state"));
  std::size_t shards = 0;
  fields.each("shards", [&](std::size_t, const Json&) { ++shards; });
  fields.each_object("shards", [&](const Fields& shard) {
    if (std::size_t(read_shard(shard, shards)) != manifest.shards.size()) {
      shard.wrong("file", "is not in its place");
    }
    manifest.shards.push_back(
        {shard.integer<std::uint64_t>("bytes"), shard.hex<std::uint32_t>("crc32")});
  });
  std::set<std::string> names;
  fields.each_object("arrays", [&](const Fields& array) {
    manifest.arrays.push_back(read_array(array, shards));
    if (!names.insert(manifest.arrays.back().name).second)
      array.wrong("name", "stands there twice");
  });
  return manifest;
}

}  // namespace lockstep::engine
