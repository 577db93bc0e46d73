// SPDX-License-Identifier: MIT
#include "strategies/grpc/tls_files.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>

#include "engine/base/error.h"
#include "engine/base/plain_file.h"

namespace lockstep::strategies::grpc {

namespace {

using engine::Code;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using Memory = std::unique_ptr<BIO, decltype(&BIO_free)>;

// Maximum bytes of a file; all authorities that browsers know take 220 KB.
constexpr std::size_t kMostTlsText = std::size_t(4) << 20;

std::string tls_text(const std::string& what, const std::string& path) {
  engine::require(!path.empty(),
                  "TLS needs three files (authority, certificate, key), and no {} was given", what);
  return engine::read_text(path, fmt::format("the TLS {} {}", what, path), kMostTlsText);
}

Memory memory_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), int(text.size())), BIO_free};
}

// Refuses keys with a password, since no user is there to type it.
int no_password(char*, int, int, void*) {
  return -1;
}

Certificate certificate_of(const std::string& what, const std::string& path,
                           const std::string& text) {
  const Memory memory = memory_of(text);
  Certificate certificate(PEM_read_bio_X509(memory.get(), nullptr, no_password, nullptr),
                          X509_free);
  ERR_clear_error();
  if (!certificate)
    engine::fail(Code::kCorrupt, "the TLS {} {} holds no certificate in PEM", what, path);
  return certificate;
}

Key private_key(const std::string& path, const std::string& text) {
  const Memory memory = memory_of(text);
  Key key(PEM_read_bio_PrivateKey(memory.get(), nullptr, no_password, nullptr), EVP_PKEY_free);
  ERR_clear_error();
  if (!key) {
    engine::fail(Code::kCorrupt, "the TLS key {} holds no private key in PEM without a password",
                 path);
  }
  return key;
}

}  // namespace

TlsTexts read(const TlsFiles& files) {
  TlsTexts texts{tls_text("authority", files.authority), tls_text("certificate", files.certificate),
                 tls_text("key", files.key)};
  certificate_of("authority", files.authority, texts.authority);
  const Certificate mine = certificate_of("certificate", files.certificate, texts.certificate);
  const Key key = private_key(files.key, texts.key);
  const bool fits = X509_check_private_key(mine.get(), key.get()) == 1;
  ERR_clear_error();
  engine::require(fits, "the TLS key {} is not that of the certificate {}", files.key,
                  files.certificate);
  return texts;
}

}  // namespace lockstep::strategies::grpc
