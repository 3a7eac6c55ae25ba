// SPDX-License-Identifier: MIT
// TLS of one connection as bytes in, bytes out: no sockets, so the server's reading and writing stay as they are. The
// protocol is OpenSSL's (1.2 and 1.3); OpenSSL's headers stay in the .cc. Source: RFC 8446.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace deepinfer {

struct TlsFiles {
  std::string certificate;  // PEM: the server's, then what it was signed with
  std::string key;          // PEM, not encrypted
};

// A server's certificate and key. Immutable; any thread.
class TlsIdentity {
 public:
  // Errors: not_found, invalid_argument (which file, what is wrong with it, that the two do not belong together).
  static Result<std::shared_ptr<const TlsIdentity>> load(const TlsFiles& files);
  ~TlsIdentity();

 private:
  TlsIdentity() = default;
  friend class TlsSession;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// What clients of this program trust: the certificates of the system, or those of one PEM file. Immutable; any thread.
class TlsTrust {
 public:
  static Result<std::shared_ptr<const TlsTrust>> load(const std::string& path = "");
  ~TlsTrust();

 private:
  TlsTrust() = default;
  friend class TlsSession;
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// One connection's state. Thread: one owner.
class TlsSession {
 public:
  explicit TlsSession(const TlsIdentity& identity);                 // the server's side
  TlsSession(const TlsTrust& trust, const std::string& host_name);  // a client's: the certificate must be of that name
  ~TlsSession();

  // Bytes off the socket; what they say is appended to `plain`. Errors: corruption (not TLS, or a broken record),
  // invalid_argument (the peer's certificate). What is to be sent stands in take_sealed() even then (an alert).
  Status open(std::string_view sealed, std::string& plain);
  // Puts text under the seal. Before the handshake is over it waits inside.
  Status seal(std::string_view plain);
  void end();                   // says that nothing follows
  std::string take_sealed();    // bytes for the socket; empty when there are none
  bool is_established() const;  // the handshake is over
  bool is_ended_by_peer() const;
  bool speaks_plain_http() const;  // open() failed because the peer sent an HTTP request

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace deepinfer
