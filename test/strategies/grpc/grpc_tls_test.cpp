// SPDX-License-Identifier: MIT
// With mutual TLS, both ends refuse a peer without a certificate of the authority, and the server
// continues to serve. Wrong files are reported at once.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <iterator>

#include "strategies/grpc/connection.h"
#include "strategies/grpc/server.h"
#include "test/strategies/grpc/certificates.h"
#include "test/strategies/parameter_server/rpc/echo_service.h"

namespace lockstep::test {
namespace grpc_tls_test {

using namespace std::chrono_literals;
using engine::Clock;
using engine::Code;
using engine::Error;
using strategies::grpc::connect;
using strategies::grpc::ConnectOptions;
using strategies::grpc::serve;
using strategies::grpc::TlsFiles;
using strategies::rpc::Message;
using testing::HasSubstr;

constexpr auto kLong = 60s;  // reached only by a defect

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Tls : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    ours_ = std::make_unique<Certificates>();
    others_ = std::make_unique<Certificates>();
  }
  static void TearDownTestSuite() {
    ours_.reset();
    others_.reset();
  }

  strategies::rpc::Reply echo(const ConnectOptions& options) {
    const auto connection = connect(server_->address(), options);
    std::promise<strategies::rpc::Reply> promise;
    connection->start("Echo", message_of("", 1 << 20), Clock::now() + kLong,
                      [&](strategies::rpc::Reply reply) { promise.set_value(std::move(reply)); });
    return promise.get_future().get();
  }
  void refused(const ConnectOptions& options) {
    const strategies::rpc::Reply reply = echo(options);
    EXPECT_EQ(reply.code, Code::kUnavailable) << reply.why;
    EXPECT_FALSE(reply.ok());
    EXPECT_EQ(service_.calls(), 0u);
    EXPECT_TRUE(echo({.tls = ours_->files()}).ok());  // the server continues to serve
  }
  // Returns the error message that both ends report for these files.
  static std::string line(const TlsFiles& files, Code code) {
    EchoService service;
    std::string text;
    try {
      serve(service, {.tls = files});
      ADD_FAILURE() << "served with " << files.key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      text = error.what();
    }
    try {
      connect("127.0.0.1:1", {.tls = files});
      ADD_FAILURE() << "connected with " << files.key;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), text);
    }
    EXPECT_EQ(text.find('\n'), std::string::npos);
    return text;
  }

  static inline std::unique_ptr<Certificates> ours_, others_;
  EchoService service_;
  std::unique_ptr<strategies::grpc::Server> server_ = serve(service_, {.tls = ours_->files()});
};

TEST_F(Tls, WhoHasTheAuthoritysCertificateIsServed) {
  EXPECT_TRUE(echo({.tls = ours_->files()}).ok());
  EXPECT_TRUE(echo({.tls = ours_->files(), .server_name = "task.test"}).ok());
}

TEST_F(Tls, AClientWithoutTlsIsRefused) {
  refused({});
}

TEST_F(Tls, AClientOfAnotherAuthorityIsRefused) {
  TlsFiles files = others_->files();
  files.authority = ours_->files().authority;  // it trusts the server
  refused({.tls = files});
}

TEST_F(Tls, AServerOfAnotherAuthorityIsNotBelieved) {
  TlsFiles files = ours_->files();
  files.authority = others_->files().authority;
  refused({.tls = files});
}

TEST_F(Tls, AServerOfAnotherNameIsNotBelieved) {
  refused({.tls = ours_->files(), .server_name = "other.test"});
}

TEST_F(Tls, AClientWithoutACertificateIsRefused) {
  ::grpc::SslCredentialsOptions ssl;
  ssl.pem_root_certs = text_of(ours_->files().authority);
  ::grpc::GenericStub stub(::grpc::CreateChannel(server_->address(), ::grpc::SslCredentials(ssl)));
  ::grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kLong);
  const ::grpc::Slice nothing;
  const ::grpc::ByteBuffer request(&nothing, 1);
  ::grpc::ByteBuffer reply;
  std::promise<::grpc::Status> status;
  stub.UnaryCall(&context, "/lockstep.ParameterServer/Echo", {}, &request, &reply,
                 [&](::grpc::Status came) { status.set_value(std::move(came)); });
  EXPECT_EQ(status.get_future().get().error_code(), ::grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(service_.calls(), 0u);
  EXPECT_TRUE(echo({.tls = ours_->files()}).ok());
}

TEST_F(Tls, AServerWithoutTlsIsNotBelieved) {
  server_ = serve(service_);
  EXPECT_EQ(echo({.tls = ours_->files()}).code, Code::kUnavailable);
  EXPECT_EQ(service_.calls(), 0u);
  EXPECT_TRUE(echo({}).ok());
}

TEST_F(Tls, WithTlsOtherHostsMayReachIt) {
  const auto server = serve(service_, {.address = "0.0.0.0:0", .tls = ours_->files()});
  EXPECT_GT(server->port(), 0);
}

TEST_F(Tls, EachFileThatIsWrongIsNamed) {
  const std::string empty = ours_->file("empty", ""), noise = ours_->file("noise", "noise\n");
  const std::string folder = std::filesystem::temp_directory_path().string();
  for (std::string TlsFiles::*which :
       {&TlsFiles::authority, &TlsFiles::certificate, &TlsFiles::key}) {
    TlsFiles files = ours_->files();
    files.*which = "/nowhere/at/all.pem";
    EXPECT_THAT(line(files, Code::kIo),
                HasSubstr("/nowhere/at/all.pem cannot be opened: No such file"));
    files.*which = folder;
    EXPECT_THAT(line(files, Code::kIo), HasSubstr(folder));
    for (const std::string& path : {empty, noise}) {
      files.*which = path;
      EXPECT_THAT(line(files, Code::kCorrupt), HasSubstr(path));
    }
    files.*which = "";
    EXPECT_THAT(line(files, Code::kInvalid), HasSubstr("three files"));
  }
}

TEST_F(Tls, AKeyThatDoesNotFitIsNamed) {
  TlsFiles files = ours_->files();
  files.key = others_->files().key;
  EXPECT_THAT(line(files, Code::kInvalid),
              HasSubstr(files.key + " is not that of the certificate"));
  files.key = files.certificate;
  EXPECT_THAT(line(files, Code::kCorrupt), HasSubstr("no private key"));
  files.key = ours_->key_with_password();
  EXPECT_THAT(line(files, Code::kCorrupt), HasSubstr("without a password"));
  files = ours_->files();
  files.certificate = files.key;
  EXPECT_THAT(line(files, Code::kCorrupt), HasSubstr("no certificate"));
}

}  // namespace grpc_tls_test
}  // namespace lockstep::test
