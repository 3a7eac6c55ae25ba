// SPDX-License-Identifier: MIT
// TLS on the server and the client of this folder, with certificates made here. What is right about TLS itself is
// OpenSSL's to test.
#include "net/tls.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "net/http_client.h"
#include "net/http_server.h"

namespace deepinfer {
namespace {

const SystemClock kClock;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

// A certificate for `host`, signed by itself, with its key.
TlsFiles make_identity(const std::string& name, const std::string& host, long serial) {
  const std::filesystem::path folder(testing::TempDir());
  const TlsFiles files{(folder / (name + ".pem")).string(), (folder / (name + ".key")).string()};
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), &EVP_PKEY_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(host.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate.get(), subject);
  X509_EXTENSION* names = X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, ("DNS:" + host).c_str());
  X509_add_ext(certificate.get(), names, -1);
  X509_EXTENSION_free(names);
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  PEM_write_X509(File(std::fopen(files.certificate.c_str(), "w")).get(), certificate.get());
  PEM_write_PrivateKey(File(std::fopen(files.key.c_str(), "w")).get(), key.get(), nullptr, nullptr, 0, nullptr,
                       nullptr);
  return files;
}

std::unique_ptr<HttpServer> start(const TlsFiles& files, HttpServerOptions options = {}) {
  options.tls = files;
  auto server = HttpServer::start(
      options,
      [](HttpRequest request, std::shared_ptr<HttpExchange> exchange) {
        if (request.path != "/stream") return exchange->respond({200, {}, request.body + "!"});
        exchange->start_stream({200, {}, ""});
        for (int i = 0; i < 1000; ++i) exchange->write(std::string(1000, static_cast<char>('a' + i % 26)));
        exchange->end_stream();
      },
      kClock);
  EXPECT_TRUE(server.ok()) << server.status().message();
  return std::move(server).value();
}

Result<HttpClient> secure_client(const HttpServer& server, const std::string& trusted, const std::string& host) {
  ASSIGN_OR_RETURN(const auto trust, TlsTrust::load(trusted));
  ASSIGN_OR_RETURN(HttpClient client, HttpClient::connect("127.0.0.1", server.port(), 5000));
  TRY(client.secure(*trust, host));
  return client;
}

TEST(TlsTest, RequestsAndStreamsComeThroughWhole) {
  const TlsFiles files = make_identity("whole", "service.test", 1);
  const auto server = start(files);
  auto client = secure_client(*server, files.certificate, "service.test");
  ASSERT_TRUE(client.ok()) << client.status().message();
  const std::string body(300'000, 'x');
  EXPECT_EQ(client->request("POST", "/echo", body).value().body, body + "!");
  EXPECT_EQ(client->request("GET", "/stream").value().body.size(), 1'000'000u);
  EXPECT_EQ(client->request("POST", "/echo", "again").value().body, "again!");
}

TEST(TlsTest, AClientKnowsWhomItTalksTo) {
  const TlsFiles ours = make_identity("ours", "service.test", 1), theirs = make_identity("theirs", "service.test", 2);
  const auto server = start(ours);
  EXPECT_FALSE(secure_client(*server, theirs.certificate, "service.test").ok());
  EXPECT_FALSE(secure_client(*server, ours.certificate, "other.test").ok());
  EXPECT_TRUE(secure_client(*server, ours.certificate, "service.test").ok());
}

TEST(TlsTest, CertificatesAreReadAgainAndBadOnesLeaveTheOldInPlace) {
  const TlsFiles files = make_identity("renewed", "service.test", 1);
  const auto server = start(files);
  auto before = secure_client(*server, files.certificate, "service.test");
  ASSERT_TRUE(before.ok());
  const TlsFiles other = make_identity("new", "service.test", 2);
  for (const auto& [from, to] : {std::pair(other.certificate, files.certificate), std::pair(other.key, files.key)})
    std::filesystem::copy_file(from, to, std::filesystem::copy_options::overwrite_existing);
  ASSERT_TRUE(server->reload_tls().ok());
  EXPECT_TRUE(secure_client(*server, other.certificate, "service.test").ok());
  EXPECT_EQ(before->request("POST", "/echo", "still").value().body, "still!");  // its session goes on
  std::ofstream(files.key) << "no key";
  const Status broken = server->reload_tls();
  EXPECT_NE(broken.message().find(files.key), std::string::npos);
  EXPECT_TRUE(secure_client(*server, other.certificate, "service.test").ok());
}

TEST(TlsTest, FilesThatDoNotBelongTogetherAreNamed) {
  const TlsFiles one = make_identity("one", "a.test", 1), two = make_identity("two", "a.test", 2);
  EXPECT_NE(TlsIdentity::load({one.certificate, two.key}).status().message().find(two.key), std::string::npos);
  EXPECT_EQ(TlsIdentity::load({"/no/such/file", two.key}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(TlsIdentity::load({one.key, one.key}).status().code(), StatusCode::kInvalidArgument);
}

TEST(TlsTest, PlainRequestsAreToldAndNoiseIsDropped) {
  const TlsFiles files = make_identity("noise", "service.test", 1);
  HttpServerOptions options;
  options.head_timeout_ns = 200'000'000;
  const auto server = start(files, options);
  HttpClient plain = HttpClient::connect("127.0.0.1", server->port(), 5000).value();
  EXPECT_EQ(plain.request("GET", "/").value().status, 400);
  HttpClient noise = HttpClient::connect("127.0.0.1", server->port(), 5000).value();
  ASSERT_TRUE(noise.send(std::string(5000, '\x42')).ok());
  EXPECT_FALSE(noise.receive().ok());
  HttpClient silent = HttpClient::connect("127.0.0.1", server->port(), 5000).value();
  EXPECT_TRUE(silent.is_closed_by_peer());  // the handshake has a time-out
  EXPECT_TRUE(secure_client(*server, files.certificate, "service.test").ok());
}

// Every cut of the stream gives the same text.
TEST(TlsTest, SessionsDoNotDependOnHowBytesWereCut) {
  const TlsFiles files = make_identity("cut", "service.test", 1);
  const auto identity = TlsIdentity::load(files).value();
  const auto trust = TlsTrust::load(files.certificate).value();
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{5000}}) {
    TlsSession server(*identity), client(*trust, "service.test");
    ASSERT_TRUE(client.seal("asked before the handshake").ok());
    std::string to_server, to_client, heard, answered;
    for (int round = 0; round < 10; ++round) {
      to_server += client.take_sealed();
      for (; !to_server.empty(); to_server.erase(0, piece))
        ASSERT_TRUE(server.open(to_server.substr(0, piece), heard).ok());
      if (round == 8) { ASSERT_TRUE(server.seal("x").ok()); }
      to_client += server.take_sealed();
      for (; !to_client.empty(); to_client.erase(0, piece))
        ASSERT_TRUE(client.open(to_client.substr(0, piece), answered).ok());
    }
    EXPECT_EQ(heard, "asked before the handshake");
    EXPECT_EQ(answered, "x");
  }
}

}  // namespace
}  // namespace deepinfer
