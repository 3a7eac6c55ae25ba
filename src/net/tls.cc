// SPDX-License-Identifier: MIT
#include "net/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/file.h"

namespace deepinfer {
namespace {

constexpr size_t kPieceBytes = 16 << 10;  // the largest record

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Context = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using Connection = std::unique_ptr<SSL, Freed<SSL_free>>;

std::string last_reason() {
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  const char* reason = code ? ERR_reason_error_string(code) : nullptr;
  return reason ? reason : "unknown reason";
}

// Of what a client offers we speak HTTP/1.1; one that offers nothing we know gets no answer to the offer.
int choose_protocol(SSL*, const unsigned char** out, unsigned char* num_out, const unsigned char* offered,
                    unsigned int num_offered, void*) {
  static constexpr unsigned char kOurs[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  const int found = SSL_select_next_proto(&chosen, num_out, kOurs, sizeof kOurs - 1, offered, num_offered);
  *out = chosen;
  return found == OPENSSL_NPN_NEGOTIATED ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_NOACK;
}

Context make_context(const SSL_METHOD* method) {
  Context context(SSL_CTX_new(method));
  CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);  // an idle connection keeps none
  return context;
}

// The reader of passwords: a service has nobody to ask.
int no_password(char*, int, int, void*) { return 0; }

}  // namespace

struct TlsIdentity::Parts {
  Context context;
};
struct TlsTrust::Parts {
  Context context;
};

TlsIdentity::~TlsIdentity() = default;
TlsTrust::~TlsTrust() = default;

Result<std::shared_ptr<const TlsIdentity>> TlsIdentity::load(const TlsFiles& files) {
  // The library's own messages do not name the file, so whether it can be read is asked first.
  for (const std::string& path : {files.certificate, files.key}) TRY(read_file(path, 1 << 20).status());
  std::shared_ptr<TlsIdentity> identity(new TlsIdentity);
  identity->parts_ = std::make_unique<Parts>(Parts{make_context(TLS_server_method())});
  SSL_CTX* context = identity->parts_->context.get();
  ERR_clear_error();
  SSL_CTX_set_default_passwd_cb(context, no_password);
  if (SSL_CTX_use_certificate_chain_file(context, files.certificate.c_str()) != 1)
    return invalid_argument(files.certificate + ": expected certificates in PEM form: " + last_reason());
  if (SSL_CTX_use_PrivateKey_file(context, files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return invalid_argument(
        files.key + ": expected the certificate's private key in PEM form, without a password: " + last_reason());
  if (SSL_CTX_check_private_key(context) != 1)
    return invalid_argument(files.key + ": is not the key of " + files.certificate);
  SSL_CTX_set_alpn_select_cb(context, choose_protocol, nullptr);
  return std::shared_ptr<const TlsIdentity>(std::move(identity));
}

Result<std::shared_ptr<const TlsTrust>> TlsTrust::load(const std::string& path) {
  std::shared_ptr<TlsTrust> trust(new TlsTrust);
  trust->parts_ = std::make_unique<Parts>(Parts{make_context(TLS_client_method())});
  SSL_CTX* context = trust->parts_->context.get();
  const int loaded = path.empty() ? SSL_CTX_set_default_verify_paths(context)
                                  : SSL_CTX_load_verify_locations(context, path.c_str(), nullptr);
  if (loaded != 1) return invalid_argument(path + ": expected certificates in PEM form: " + last_reason());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return std::shared_ptr<const TlsTrust>(std::move(trust));
}

struct TlsSession::Parts {
  explicit Parts(SSL_CTX* context) : ssl(SSL_new(context)), in(BIO_new(BIO_s_mem())), out(BIO_new(BIO_s_mem())) {
    CHECK(ssl != nullptr && in != nullptr && out != nullptr);
    BIO_set_mem_eof_return(in, -1);  // empty means: more will come
    SSL_set_bio(ssl.get(), in, out);
  }

  // Errors: what ended the connection. "Wants more" is no error.
  Status check(int returned) {
    switch (SSL_get_error(ssl.get(), returned)) {
      case SSL_ERROR_NONE:
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE: return {};
      case SSL_ERROR_ZERO_RETURN: is_ended = true; return {};
      default: break;
    }
    if (const long verdict = SSL_get_verify_result(ssl.get()); verdict != X509_V_OK)
      return invalid_argument(std::string("the certificate is not trusted: ") + X509_verify_cert_error_string(verdict));
    sent_http = ERR_GET_REASON(ERR_peek_error()) == SSL_R_HTTP_REQUEST;
    return corruption("TLS: " + last_reason());
  }

  Status write(std::string_view plain) {
    while (!plain.empty()) {
      const int taken = SSL_write(ssl.get(), plain.data(), static_cast<int>(std::min(plain.size(), kPieceBytes)));
      if (taken <= 0) return check(taken);
      plain.remove_prefix(static_cast<size_t>(taken));
    }
    return {};
  }

  Connection ssl;
  BIO* in;              // ssl's
  BIO* out;             // ssl's
  std::string waiting;  // text given before the handshake was over
  bool is_ended = false, sent_http = false;
};

TlsSession::TlsSession(const TlsIdentity& identity) : parts_(std::make_unique<Parts>(identity.parts_->context.get())) {
  SSL_set_accept_state(parts_->ssl.get());
}

TlsSession::TlsSession(const TlsTrust& trust, const std::string& host_name)
    : parts_(std::make_unique<Parts>(trust.parts_->context.get())) {
  SSL* ssl = parts_->ssl.get();
  SSL_set_connect_state(ssl);
  SSL_set_tlsext_host_name(ssl, host_name.c_str());
  SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  X509_VERIFY_PARAM* rules = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, host_name.c_str()) != 1) CHECK(SSL_set1_host(ssl, host_name.c_str()) == 1);
  ERR_clear_error();
  SSL_do_handshake(ssl);  // makes the first message
}

TlsSession::~TlsSession() { ERR_clear_error(); }

Status TlsSession::open(std::string_view sealed, std::string& plain) {
  Parts& p = *parts_;
  ERR_clear_error();
  if (BIO_write(p.in, sealed.data(), static_cast<int>(sealed.size())) != static_cast<int>(sealed.size()))
    return resource_exhausted("TLS: no memory");
  if (!is_established()) TRY(p.check(SSL_do_handshake(p.ssl.get())));
  if (!is_established()) return {};
  if (!p.waiting.empty()) {
    const std::string waiting = std::exchange(p.waiting, {});
    TRY(p.write(waiting));
  }
  char piece[kPieceBytes];
  for (;;) {
    const int num_read = SSL_read(p.ssl.get(), piece, sizeof piece);
    if (num_read <= 0) return p.check(num_read);
    plain.append(piece, static_cast<size_t>(num_read));
  }
}

Status TlsSession::seal(std::string_view plain) {
  ERR_clear_error();
  if (is_established()) return parts_->write(plain);
  parts_->waiting += plain;
  return {};
}

void TlsSession::end() {
  ERR_clear_error();
  if (is_established()) (void)SSL_shutdown(parts_->ssl.get());
}

std::string TlsSession::take_sealed() {
  std::string sealed(BIO_ctrl_pending(parts_->out), '\0');
  if (!sealed.empty()) CHECK(BIO_read(parts_->out, sealed.data(), static_cast<int>(sealed.size())) > 0);
  return sealed;
}

bool TlsSession::is_established() const { return SSL_is_init_finished(parts_->ssl.get()) != 0; }
bool TlsSession::is_ended_by_peer() const { return parts_->is_ended; }
bool TlsSession::speaks_plain_http() const { return parts_->sent_http; }

}  // namespace deepinfer
