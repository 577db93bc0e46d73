// SPDX-License-Identifier: MIT
// Tests damaged IDX files: they are refused as corrupt, or read exactly as they stand. Both need
// little memory. In compressed files, the gzip checksum covers all content, so damaged content is
// always refused.
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>

#include "engine/base/error.h"
#include "engine/data/idx_file.h"
#include "test/fuzz/damage.h"
#include "test/fuzz/memory_file.h"
#include "test/fuzz/most_memory.h"

namespace lockstep::test {
namespace idx_fuzz_test {

using engine::Code;
using engine::Error;
using engine::data::IdxFile;

constexpr int kExtents = 3;
constexpr std::size_t kLittle = std::size_t(1) << 20;

void append_big_endian(std::string& text, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) text += char(value >> shift & 0xff);
}

// Returns the file with exactly this content.
std::string file_of(const IdxFile& idx) {
  std::string text;
  append_big_endian(text, 0x800 + kExtents);
  for (const std::uint32_t extent : idx.extents) append_big_endian(text, extent);
  return text + std::string(idx.bytes.begin(), idx.bytes.end());
}

std::string images() {
  IdxFile idx{{5, 6, 4}, {}};
  for (int i = 0; i < 5 * 6 * 4; ++i) idx.bytes.push_back(std::uint8_t(i * i));
  return file_of(idx);
}

std::string compressed(std::string plain) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(plain.data());
  stream.avail_in = uInt(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = uInt(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Reads each damaged copy of `whole` and returns the number of accepted ones, which must equal the
// file `expected(damaged)`.
template <class Expected>
std::uint64_t read_all(const std::string& whole, Expected expected) {
  MemoryFile file;
  std::uint64_t accepted = 0;
  for (std::uint64_t number = 0; number < kInputs; ++number) {
    const std::string text = damaged(whole, number);
    file.set(text);
    watch_memory();
    try {
      const IdxFile idx = engine::data::read_idx_file(file.path(), kExtents);
      EXPECT_EQ(file_of(idx), expected(text)) << number;
      ++accepted;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kCorrupt) << number << ": " << error.what();
    }
    EXPECT_LT(most_memory(), kLittle) << number;
    if (testing::Test::HasFailure()) break;
  }
  return accepted;
}

TEST(IdxFuzz, ADamagedPlainFileIsRefusedOrReadAsItStands) {
  const std::uint64_t accepted = read_all(images(), [](const std::string& text) { return text; });
  EXPECT_GT(accepted, 100u);  // pixels may be anything
  EXPECT_LT(accepted, kInputs * 2 / 3);
}

TEST(IdxFuzz, ADamagedCompressedFileIsRefusedOrReadAsItWas) {
  const std::uint64_t accepted =
      read_all(compressed(images()), [](const std::string&) { return images(); });
  EXPECT_LT(accepted, kInputs / 2);  // gzip's header accepts any time, system, etc.
}

// The header announces a thousand times the actual content, which zlib could have compressed into
// so many bytes.
TEST(IdxFuzz, ACompressedFileThatHoldsLessThanItAnnouncesTakesLittleMemory) {
  constexpr std::size_t kBytes = std::size_t(4) << 20;
  for (const std::size_t held : {std::size_t(10), std::size_t(30) << 20}) {
    std::string text;
    append_big_endian(text, 0x800 + kExtents);
    for (const std::uint32_t extent : {4'000'000u, 28u, 28u}) append_big_endian(text, extent);
    text = compressed(text + std::string(held, '\0'));
    MemoryFile file;
    file.set(text + std::string(kBytes, 'x'));
    watch_memory();
    EXPECT_THROW(engine::data::read_idx_file(file.path(), kExtents), Error);
    EXPECT_LT(most_memory(), kLittle) << held;
  }
}

}  // namespace idx_fuzz_test
}  // namespace lockstep::test
