// SPDX-License-Identifier: MIT
#include "net/http_parser.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "base/check.h"

namespace deepinfer {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

std::string text(beast::string_view view) { return {view.data(), view.size()}; }
std::string_view std_view(beast::string_view view) { return {view.data(), view.size()}; }

HttpFault fault_of(const beast::error_code& error) {
  if (error == http::error::header_limit) return {431, "the request's header is larger than this server takes"};
  if (error == http::error::body_limit) return {413, "the request's body is larger than this server takes"};
  if (error == http::error::bad_version) return {505, "expected HTTP/1.1 or HTTP/1.0"};
  return {400, "malformed HTTP request: " + error.message()};
}

// Feeds what is pending; what the parser did not use stays. False on an error.
template <typename Parser>
bool feed(Parser& parser, std::string& pending, beast::error_code& error) {
  size_t begin = 0;
  while (begin < pending.size() && !parser.is_done()) {
    error = {};
    const size_t used = parser.put(boost::asio::buffer(pending.data() + begin, pending.size() - begin), error);
    begin += used;
    if (error == http::error::need_more) error = {};
    else if (error) break;
    if (used == 0) break;
  }
  pending.erase(0, begin);
  return !error;
}

// Beast joins them; another server may not (RFC 9112 5.2).
bool has_folded_line(std::string_view head) {
  return head.find("\n ") != std::string_view::npos || head.find("\n\t") != std::string_view::npos;
}

template <typename Fields>
HttpFields copy_fields(const Fields& fields) {
  HttpFields out;
  for (const auto& field : fields) out.emplace_back(text(field.name_string()), text(field.value()));
  return out;
}

}  // namespace

struct HttpRequestParser::Parts {
  using Parser = http::request_parser<http::string_body>;

  explicit Parts(const HttpLimits& l) : limits(l) { begin(); }

  void begin() {
    parser.emplace();
    parser->eager(true);
    parser->header_limit(static_cast<uint32_t>(limits.header_bytes_max));
    parser->body_limit(limits.body_bytes_max);
    begun = false;
    num_searched = 0;
  }

  void run() {
    if (fault || parser->is_done()) return;
    // A request may follow an empty line (RFC 9112 2.2).
    if (!begun) pending.erase(0, std::min(pending.find_first_not_of("\r\n"), pending.size()));
    begun = begun || !pending.empty();
    if (!begun || (!parser->is_header_done() && !read_head())) return;
    beast::error_code error;
    if (!fault && !feed(*parser, pending, error)) fault = fault_of(error);
    // Beast counts neither a chunk's extension nor the trailer: what does not move is bounded here.
    if (!fault && !parser->is_done() && pending.size() > limits.header_bytes_max)
      fault = HttpFault{431, "a line of the request is longer than this server takes"};
  }

  // Beast gets a head in one piece and nothing with it: what it says about a broken one would depend on the cut
  // otherwise. False until the head is there.
  bool read_head() {
    const char first = pending[0];
    if (!((first >= 'A' && first <= 'Z') || (first >= 'a' && first <= 'z'))) {
      fault = HttpFault{400, "expected an HTTP request (TLS is not spoken on this port)"};
      return false;
    }
    const size_t end = pending.find("\r\n\r\n", num_searched);
    num_searched = pending.size() < 3 ? 0 : pending.size() - 3;
    const bool is_whole = end != std::string::npos;
    if ((is_whole ? end + 4 : pending.size()) > limits.header_bytes_max)
      fault = HttpFault{431, "the request's header is larger than this server takes"};
    if (fault || !is_whole) return false;
    std::string head = pending.substr(0, end + 4);
    pending.erase(0, end + 4);
    if (has_folded_line(head)) {
      fault = HttpFault{400, "a field of the request's header goes on in a second line, which is refused"};
      return false;
    }
    beast::error_code error;
    if (!feed(*parser, head, error)) fault = fault_of(error);
    else if (!parser->is_header_done() || !head.empty()) fault = HttpFault{400, "malformed HTTP request"};
    else check_head();
    return true;
  }

  void check_head() {
    const auto& message = parser->get();
    const auto codings = message.equal_range(http::field::transfer_encoding);
    int num_codings = 0;
    for (auto it = codings.first; it != codings.second; ++it) {
      ++num_codings;
      if (!beast::iequals(it->value(), "chunked")) fault = HttpFault{501, "Transfer-Encoding: expected chunked"};
    }
    if (num_codings > 1 || (num_codings == 1 && message.version() < 11))
      fault = HttpFault{400, "Transfer-Encoding: expected once, in HTTP/1.1"};
    if (num_codings > 0 && message.count(http::field::content_length) > 0)
      fault = HttpFault{400, "Content-Length beside Transfer-Encoding is refused"};
    const size_t num_hosts = message.count(http::field::host);
    if (num_hosts > 1 || (num_hosts == 0 && message.version() >= 11))
      fault = HttpFault{400, "Host: expected exactly one"};
    if (message.target().size() > limits.target_bytes_max)
      fault = HttpFault{414, "the request target is longer than this server takes"};
    if (message.version() != 10 && message.version() != 11) fault = HttpFault{505, "expected HTTP/1.1 or HTTP/1.0"};
    HttpRequest request;
    const Status target = split_target(std_view(message.target()), request);
    if (!fault && !target.ok()) fault = HttpFault{400, target.message()};
  }

  HttpLimits limits;
  std::string pending;
  std::optional<Parser> parser;
  std::optional<HttpFault> fault;
  bool begun = false;
  size_t num_searched = 0;  // of pending: no end of the head begins in there
};

HttpRequestParser::HttpRequestParser(const HttpLimits& limits) : parts_(std::make_unique<Parts>(limits)) {}
HttpRequestParser::~HttpRequestParser() = default;

void HttpRequestParser::push(std::string_view bytes) {
  parts_->pending += bytes;
  parts_->run();
}

bool HttpRequestParser::is_done() const { return !parts_->fault && parts_->parser->is_done(); }
const std::optional<HttpFault>& HttpRequestParser::fault() const { return parts_->fault; }
bool HttpRequestParser::has_begun() const { return parts_->begun; }
bool HttpRequestParser::has_head() const { return parts_->parser->is_header_done(); }
size_t HttpRequestParser::num_pending_bytes() const { return parts_->pending.size(); }

bool HttpRequestParser::expects_continue() const {
  if (!has_head() || is_done()) return false;
  return equals_ignoring_case(std_view(parts_->parser->get()[http::field::expect]), "100-continue");
}

size_t HttpRequestParser::num_body_bytes() const {
  if (!has_head()) return 0;
  const size_t num_read = parts_->parser->get().body().size();
  return std::max(num_read, static_cast<size_t>(parts_->parser->content_length().value_or(0)));
}

HttpRequest HttpRequestParser::head() const {
  CHECK(has_head());
  const auto& message = parts_->parser->get();
  HttpRequest request;
  request.method = text(message.method_string());
  request.fields = copy_fields(message);
  (void)split_target(std_view(message.target()), request);
  return request;
}

HttpRequest HttpRequestParser::take() {
  CHECK(is_done());
  auto message = parts_->parser->release();
  HttpRequest request;
  request.method = text(message.method_string());
  request.fields = copy_fields(message);
  request.body = std::move(message.body());
  request.keep_alive = message.keep_alive();
  request.is_http_1_0 = message.version() == 10;
  (void)split_target(std_view(message.target()), request);  // it was looked at with the head
  parts_->begin();
  parts_->run();
  return request;
}

struct HttpResponseParser::Parts {
  using Parser = http::response_parser<http::string_body>;
  explicit Parts(size_t max) : body_bytes_max(max) { begin(); }
  void begin() {
    parser.emplace();
    parser->eager(true);
    parser->body_limit(body_bytes_max);
  }
  void run() {
    beast::error_code error;
    if (!parser->is_done() && !feed(*parser, pending, error)) has_failed = true;
  }
  size_t body_bytes_max;
  std::string pending;
  std::optional<Parser> parser;
  bool has_failed = false;
};

HttpResponseParser::HttpResponseParser(size_t body_bytes_max) : parts_(std::make_unique<Parts>(body_bytes_max)) {}
HttpResponseParser::HttpResponseParser(HttpResponseParser&&) noexcept = default;
HttpResponseParser::~HttpResponseParser() = default;

void HttpResponseParser::push(std::string_view bytes) {
  parts_->pending += bytes;
  parts_->run();
}

void HttpResponseParser::push_end() {
  beast::error_code error;
  if (parts_->parser->is_header_done() && !parts_->parser->is_done()) parts_->parser->put_eof(error);
  if (error || !parts_->parser->is_done()) parts_->has_failed = true;
}

bool HttpResponseParser::has_head() const { return parts_->parser->is_header_done(); }
bool HttpResponseParser::is_done() const { return parts_->parser->is_done(); }
bool HttpResponseParser::failed() const { return parts_->has_failed; }
const std::string& HttpResponseParser::body() const { return parts_->parser->get().body(); }

HttpResponse HttpResponseParser::take() {
  auto message = parts_->parser->release();
  HttpResponse response;
  response.status = static_cast<int>(message.result_int());
  response.fields = copy_fields(message);
  response.body = std::move(message.body());
  parts_->begin();
  parts_->run();
  return response;
}

}  // namespace deepinfer
