// SPDX-License-Identifier: MIT
#include "engine/checkpoint/safetensors.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <istream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <streambuf>
#include <utility>
#include <vector>

#include "engine/base/error.h"

namespace lockstep::engine {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors files are little-endian and are written as they lie in memory");

constexpr std::string_view kMetadataKey = "__metadata__";

std::string_view stored_name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "F32";
    case DType::kFloat64:
      return "F64";
    case DType::kInt32:
      return "I32";
    case DType::kInt64:
      return "I64";
    case DType::kFloat16:
      return "F16";
    case DType::kBFloat16:
      return "BF16";
  }
  broken("an element type without a name in files");
}

std::optional<DType> dtype_stored_as(std::string_view text) {
  for (DType dtype : kDTypes) {
    if (stored_name(dtype) == text) return dtype;
  }
  return std::nullopt;
}

// Fetches the header's text block by block while it is parsed.
class HeaderText : public std::streambuf {
 public:
  HeaderText(Storage& storage, const std::string& path, std::uint64_t begin, std::uint64_t end)
      : storage_(storage), path_(path), next_(begin), end_(end) {}

 private:
  int_type underflow() override {
    const std::size_t count = std::size_t(std::min<std::uint64_t>(block_.size(), end_ - next_));
    if (count == 0) return traits_type::eof();
    storage_.read(path_, next_, std::as_writable_bytes(std::span(block_.data(), count)));
    next_ += count;
    setg(block_.data(), block_.data(), block_.data() + count);
    return traits_type::to_int_type(block_[0]);
  }
  Storage& storage_;
  const std::string& path_;
  std::uint64_t next_, end_;
  std::vector<char> block_ = std::vector<char>(65536);
};

// Handles the header's JSON as it is parsed and refuses the first item at a wrong place. `place_`
// is the object or list that is open. Nothing is built that does not belong to a valid header.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderParser(const std::string& path, Safetensors& result) : path_(path), result_(result) {}

  bool null() override { refuse_value("null"); }
  bool boolean(bool) override { refuse_value("true or false"); }
  bool number_integer(number_integer_t) override { refuse_value("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { refuse_value("a fraction"); }
  bool binary(binary_t&) override { refuse_value("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::kShape) {
      if (entry_.shape.rank() == Shape::kMaxRank) {
        refuse("has more than {} extents", Shape::kMaxRank);
      }
      entry_.shape.append(value);
    } else if (place_ == Place::kOffsets) {
      if (offsets_ == 2) refuse("has more than two data_offsets");
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    } else {
      refuse_value("a number");
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      if (!result_.metadata.emplace(field_, value).second) {
        corrupt("the metadata {} stands there twice", in_quotes(field_));
      }
    } else if (place_ == Place::kTensor && field_ == "dtype") {
      const auto dtype = dtype_stored_as(value);
      if (!dtype) refuse("has dtype {}; known are F32 F64 I32 I64 F16 BF16", in_quotes(value));
      entry_.dtype = *dtype;
    } else {
      refuse_value("a string");
    }
    return true;
  }

  bool start_object(std::size_t) override {
    switch (place_) {
      case Place::kOutside:
        place_ = Place::kFile;
        return true;
      case Place::kFile:
        place_ = name_ == kMetadataKey ? Place::kMetadata : Place::kTensor;
        fields_.clear();
        entry_ = {};
        offsets_ = 0;
        return true;
      default:
        refuse_value("an object");
    }
  }

  bool key(string_t& text) override {
    if (place_ == Place::kFile) {
      if (result_.tensors.size() == kMaxTensors && text != kMetadataKey) {
        corrupt("the header names more than {} tensors", kMaxTensors);
      }
      name_ = text;
      const bool known = name_ == kMetadataKey ? std::exchange(metadata_seen_, true)
                                               : result_.tensors.contains(name_);
      if (known) refuse("stands there twice");
      return true;
    }
    field_ = text;
    if (place_ == Place::kTensor) {
      if (field_ != "dtype" && field_ != "shape" && field_ != "data_offsets") {
        refuse("has an unknown field {}", in_quotes(field_));
      }
      if (!fields_.insert(field_).second) refuse("has the field {} twice", in_quotes(field_));
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      for (const char* field : {"dtype", "shape", "data_offsets"}) {
        if (!fields_.contains(field)) refuse("has no {}", field);
      }
      if (offsets_ != 2) refuse("has {} data_offsets instead of two", offsets_);
      result_.tensors.emplace(name_, entry_);
    }
    place_ = place_ == Place::kFile ? Place::kOutside : Place::kFile;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ == Place::kTensor && field_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && field_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      refuse_value("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    corrupt("the header is not JSON at its byte {}", position);
  }

 private:
  enum class Place { kOutside, kFile, kMetadata, kTensor, kShape, kOffsets };

  template <class... A>
  [[noreturn]] void corrupt(fmt::format_string<A...> text, A&&... a) const {
    fail(Code::kCorrupt, "{}: {}", path_, fmt::format(text, std::forward<A>(a)...));
  }
  template <class... A>
  [[noreturn]] void refuse(fmt::format_string<A...> text, A&&... a) const {
    corrupt("{} {}", in_quotes(name_), fmt::format(text, std::forward<A>(a)...));
  }
  [[noreturn]] void refuse_value(std::string_view what) const {
    if (place_ == Place::kOutside) corrupt("the header is {} instead of an object", what);
    if (place_ == Place::kFile) refuse("is {} instead of an object", what);
    if (place_ == Place::kMetadata) {
      corrupt("the metadata {} is {} instead of a string", in_quotes(field_), what);
    }
    refuse("has {} in {}", what, in_quotes(field_));
  }

  const std::string& path_;
  Safetensors& result_;
  Place place_ = Place::kOutside;
  bool metadata_seen_ = false;
  std::string name_, field_;
  std::set<std::string, std::less<>> fields_;
  Safetensors::Entry entry_;
  int offsets_ = 0;
};

// Returns the bytes of a tensor of this shape, or nothing if the product overflows.
std::optional<std::uint64_t> entry_bytes(const Safetensors::Entry& entry) {
  std::uint64_t bytes = size_of(entry.dtype);
  for (std::size_t i = 0; i < entry.shape.rank(); ++i) {
    if (__builtin_mul_overflow(bytes, std::uint64_t(entry.shape[i]), &bytes)) return std::nullopt;
  }
  return bytes;
}

// Converts the offsets, which the file counts from the end of the header, `data_begin`. In the
// order of their offsets, each tensor must begin at the end of the one before, and the last must
// end the file.
void place_tensors(const std::string& path, std::uint64_t data_begin, Safetensors& result) {
  const std::uint64_t data_bytes = result.bytes - data_begin;
  using Item = std::pair<const std::string, Safetensors::Entry>;
  std::vector<Item*> order;
  for (Item& item : result.tensors) {
    const Safetensors::Entry& entry = item.second;
    const auto bytes = entry_bytes(entry);
    const auto wrong = [&](const std::string& reason) {
      fail(Code::kCorrupt, "{}: {} {}", path, in_quotes(item.first), reason);
    };
    if (!bytes) wrong(fmt::format("has shape {}, which is too large", to_string(entry.shape)));
    if (entry.begin > entry.end || entry.end > data_bytes) {
      wrong(fmt::format("has data_offsets [{}, {}] in {} bytes of data", entry.begin, entry.end,
                        data_bytes));
    }
    if (entry.end - entry.begin != *bytes) {
      wrong(fmt::format("has {} bytes by its data_offsets, {} by its shape {}",
                        entry.end - entry.begin, *bytes, to_string(entry.shape)));
    }
    order.push_back(&item);
  }
  std::sort(order.begin(), order.end(), [](const Item* a, const Item* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t expected = 0;
  for (Item* item : order) {
    if (item->second.begin != expected) {
      fail(Code::kCorrupt, "{}: {} begins at byte {} of the data, the one before it ends at {}",
           path, in_quotes(item->first), item->second.begin, expected);
    }
    expected = item->second.end;
    item->second.begin += data_begin;
    item->second.end += data_begin;
  }
  if (expected != data_bytes) {
    fail(Code::kCorrupt, "{}: its tensors end at byte {} of the data, the file has {}", path,
         expected, data_bytes);
  }
}

// Writes a file and sums its bytes at the same time.
class SummingFile {
 public:
  explicit SummingFile(StorageFile& file) : file_(file) {}
  void write(std::span<const std::byte> bytes) {
    constexpr std::size_t kBlock = std::size_t{4} << 20;  // still in the cache when written
    while (!bytes.empty()) {
      const auto block = bytes.first(std::min(kBlock, bytes.size()));
      sum_.crc = std::uint32_t(
          crc32_z(sum_.crc, reinterpret_cast<const Bytef*>(block.data()), block.size()));
      sum_.bytes += block.size();
      file_.write(block);
      bytes = bytes.subspan(block.size());
    }
  }
  FileSum sum() const { return sum_; }

 private:
  StorageFile& file_;
  FileSum sum_;
};

// Returns the header's text, preceded by its length. `order`: the order of the data.
std::string header_of(const std::vector<const TensorSource*>& order,
                      const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // Built with emplace_back, because searching a key in an ordered object is linear in its size.
  auto& items = header.get_ref<nlohmann::ordered_json::object_t&>();
  if (!metadata.empty()) items.emplace_back(std::string(kMetadataKey), metadata);
  std::uint64_t at = 0;
  for (const TensorSource* tensor : order) {
    auto shape = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < tensor->shape.rank(); ++i) shape.push_back(tensor->shape[i]);
    const std::uint64_t end = at + tensor->shape.elements() * size_of(tensor->dtype);
    items.emplace_back(tensor->name, nlohmann::ordered_json{{"dtype", stored_name(tensor->dtype)},
                                                            {"shape", std::move(shape)},
                                                            {"data_offsets", {at, end}}});
    at = end;
  }
  std::string text(sizeof(std::uint64_t), '\0');
  try {
    text += header.dump();
  } catch (const nlohmann::json::exception&) {
    fail(Code::kInvalid, "a name or a note of the checkpoint is not UTF-8");
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size() - sizeof(std::uint64_t);
  require(length <= kMaxHeaderBytes, "too many arrays: their names need {} bytes, {} are possible",
          length, kMaxHeaderBytes);
  std::memcpy(text.data(), &length, sizeof length);
  return text;
}

}  // namespace

std::string in_quotes(std::string_view name) {
  using Handler = nlohmann::json::error_handler_t;
  const bool cut = name.size() > 60;
  std::string text = nlohmann::json(name.substr(0, 60)).dump(-1, ' ', true, Handler::replace);
  text = "'" + text.substr(1, text.size() - 2) + (cut ? "..." : "") + "'";
  return text.size() <= 80 ? text : text.substr(0, 76) + "...'";
}

Safetensors read_safetensors(Storage& storage, const std::string& path) {
  Safetensors result;
  result.bytes = storage.size(path);
  std::uint64_t length = 0;
  if (result.bytes < sizeof length + 2) {
    fail(Code::kCorrupt, "{}: {} bytes are too few for a safetensors file", path, result.bytes);
  }
  storage.read(path, 0, std::as_writable_bytes(std::span(&length, 1)));
  if (length > kMaxHeaderBytes || length > result.bytes - sizeof length) {
    fail(Code::kCorrupt, "{}: its header is {} bytes long, the file {}; at most {} are possible",
         path, length, result.bytes, kMaxHeaderBytes);
  }
  HeaderText text(storage, path, sizeof length, sizeof length + length);
  if (text.sgetc() != '{') fail(Code::kCorrupt, "{}: its header does not begin with '{{'", path);
  std::istream stream(&text);
  HeaderParser parser(path, result);
  nlohmann::json::sax_parse(stream, &parser);
  place_tensors(path, sizeof length + length, result);
  return result;
}

FileSum write_safetensors(StorageFile& file, std::span<const TensorSource> tensors,
                          const std::map<std::string, std::string>& metadata) {
  require(tensors.size() <= kMaxTensors, "{} arrays in one file; at most {} are possible",
          tensors.size(), kMaxTensors);
  std::set<std::string_view> names;
  std::vector<const TensorSource*> order;
  for (const TensorSource& tensor : tensors) {
    require(!tensor.name.empty() && tensor.name != kMetadataKey, "an array may not be named {}",
            in_quotes(tensor.name));
    require(names.insert(tensor.name).second, "the array {} is given twice",
            in_quotes(tensor.name));
    order.push_back(&tensor);
  }
  std::stable_sort(order.begin(), order.end(), [](const TensorSource* a, const TensorSource* b) {
    return size_of(a->dtype) > size_of(b->dtype);
  });
  SummingFile out(file);
  const std::string header = header_of(order, metadata);
  out.write(std::as_bytes(std::span(header)));
  for (const TensorSource* tensor : order) {
    out.write({tensor->data, tensor->shape.elements() * size_of(tensor->dtype)});
  }
  return out.sum();
}

}  // namespace lockstep::engine
