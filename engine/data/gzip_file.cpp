// SPDX-License-Identifier: MIT
#include "engine/data/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::engine::data {

GzipFile::GzipFile(const std::filesystem::path& path) : path_(path.string()) {
  PlainFile file(path_);
  if (!file.fault().empty()) fail(Code::kIo, "data: {} {}", path_, file.fault());
  stored_ = file.bytes();
  file_.reset(gzdopen(file.number(), "rb"));
  if (!file_) fail(Code::kIo, "data: {} cannot be opened: no memory", path_);
  file.release();  // closed with the stream
}

void GzipFile::Close::operator()(gzFile_s* file) const {
  gzclose_r(file);
}

bool GzipFile::compressed() const {
  return gzdirect(file_.get()) == 0;
}

bool GzipFile::cut_short() const {
  int code = Z_OK;
  gzerror(file_.get(), &code);
  return code == Z_BUF_ERROR;
}

void GzipFile::rewind() {
  if (gzrewind(file_.get()) != 0) fail(Code::kIo, "data: {} cannot be read again", path_);
}

std::size_t GzipFile::read(std::span<std::uint8_t> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t piece = std::min<std::size_t>(out.size() - done, 1u << 30);
    const int got = gzread(file_.get(), out.data() + done, unsigned(piece));
    int code = Z_OK;
    const char* message = gzerror(file_.get(), &code);
    if (code == Z_ERRNO) fail(Code::kIo, "data: {}: {}", path_, std::strerror(errno));
    if (code == Z_BUF_ERROR) return done + std::size_t(std::max(got, 0));  // the file ends early
    if (got < 0) fail(Code::kCorrupt, "data: {}: gzip: {}", path_, message);
    if (got == 0) break;
    done += std::size_t(got);
  }
  return done;
}

}  // namespace lockstep::engine::data
