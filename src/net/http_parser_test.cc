// SPDX-License-Identifier: MIT
#include "net/http_parser.h"

#include <gtest/gtest.h>

#include "net/sse_writer.h"

namespace deepinfer {
namespace {

int fault_of(std::string_view bytes, HttpLimits limits = {}) {
  HttpRequestParser parser(limits);
  parser.push(bytes);
  return parser.fault() ? parser.fault()->status : 0;
}

TEST(HttpRequestParserTest, ReadsPipelinedRequestsInOrder) {
  HttpRequestParser parser({});
  parser.push(
      "POST /a%20b?x=1 HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
      "GET /second HTTP/1.1\r\nhOsT: h\r\nX-Two: 2\r\n\r\nGET /thi");
  ASSERT_TRUE(parser.is_done());
  const HttpRequest first = parser.take();
  EXPECT_EQ(first.method, "POST");
  EXPECT_EQ(first.path, "/a b");
  EXPECT_EQ(first.query, "x=1");
  EXPECT_EQ(first.body, "abc");
  ASSERT_TRUE(parser.is_done());
  const HttpRequest second = parser.take();
  EXPECT_EQ(second.path, "/second");
  EXPECT_EQ(second.field("x-two"), "2");
  EXPECT_FALSE(parser.is_done());
  parser.push("rd HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(parser.is_done());
  const HttpRequest third = parser.take();
  EXPECT_EQ(third.path, "/third");
  EXPECT_TRUE(third.is_http_1_0);
  EXPECT_FALSE(third.keep_alive);
}

TEST(HttpRequestParserTest, JoinsChunksAtAnyCut) {
  const std::string bytes =
      "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nWiki\r\n6;x=y\r\npedia!\r\n0\r\n\r\n";
  for (size_t step = 1; step < bytes.size(); ++step) {
    HttpRequestParser parser({});
    for (size_t begin = 0; begin < bytes.size(); begin += step)
      parser.push(std::string_view(bytes).substr(begin, step));
    ASSERT_TRUE(parser.is_done()) << step;
    EXPECT_EQ(parser.take().body, "Wikipedia!");
  }
}

// Two servers in a row must never disagree about where a request ends.
TEST(HttpRequestParserTest, RefusesAmbiguousFraming) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_NE(fault_of(head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"), 0);
  EXPECT_NE(fault_of(head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n"), 0);
  EXPECT_NE(fault_of(head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n"), 0);
  EXPECT_NE(fault_of(head + "Content-Length: -1\r\n\r\n"), 0);
  EXPECT_NE(fault_of(head + "Content-Length: 0x10\r\n\r\n"), 0);
  EXPECT_EQ(fault_of(head + "Transfer-Encoding: gzip, chunked\r\n\r\n"), 501);
  EXPECT_EQ(fault_of(head + "Transfer-Encoding: identity\r\n\r\n"), 501);
  EXPECT_NE(fault_of(head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"), 0);
  EXPECT_NE(fault_of("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"), 0);
  EXPECT_NE(fault_of("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 0);
  EXPECT_NE(fault_of("GET / HTTP/1.1\r\n\r\n"), 0);
  EXPECT_NE(fault_of("GET / HTTP/2.0\r\nHost: a\r\n\r\n"), 0);
  EXPECT_NE(fault_of("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 0);
  EXPECT_NE(fault_of("\x16\x03\x01 hello"), 0);
  EXPECT_EQ(fault_of(head + "X: a\r\n b\r\n\r\n"), 400);
  EXPECT_EQ(fault_of(head + "X: a\r\n\tb\r\n\r\n"), 400);
}

// Found only once the request had been taken, a bad target was answered twice.
TEST(HttpRequestParserTest, ABadTargetIsNeverARequest) {
  for (const char* target : {"/%00", "/a%zz", "/a%f", "/%ff", "*", "a", "http://h/"}) {
    HttpRequestParser parser({});
    parser.push(std::string("GET ") + target + " HTTP/1.1\r\nHost: h\r\n\r\n");
    EXPECT_FALSE(parser.is_done()) << target;
    ASSERT_TRUE(parser.fault()) << target;
    EXPECT_EQ(parser.fault()->status, 400) << target;
  }
}

TEST(HttpRequestParserTest, KeepsToItsLimits) {
  HttpLimits limits;
  limits.header_bytes_max = 200;
  limits.target_bytes_max = 50;
  limits.body_bytes_max = 10;
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(fault_of(head + "X: " + std::string(300, 'a'), limits), 431);
  EXPECT_EQ(fault_of("GET /" + std::string(60, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", limits), 414);
  EXPECT_EQ(fault_of(head + "Content-Length: 11\r\n\r\n", limits), 413);
  EXPECT_EQ(fault_of(head + "Transfer-Encoding: chunked\r\n\r\nb\r\n01234567890\r\n", limits), 413);
  EXPECT_EQ(fault_of(head + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(500, 'e'), limits), 431);
  EXPECT_EQ(fault_of(head + "Content-Length: 10\r\n\r\n0123456789", limits), 0);
}

TEST(HttpRequestParserTest, TargetsMustBePaths) {
  HttpRequest request;
  EXPECT_FALSE(split_target("http://h/x", request).ok());
  EXPECT_FALSE(split_target("/a%2", request).ok());
  EXPECT_FALSE(split_target("/a%zz", request).ok());
  EXPECT_FALSE(split_target("/a%00", request).ok());
  EXPECT_FALSE(split_target("/a%ff", request).ok());
  ASSERT_TRUE(split_target("/%41%62", request).ok());
  EXPECT_EQ(request.path, "/Ab");
}

TEST(HttpRequestParserTest, InflatedBodiesAreBounded) {
  // gzip of 1,000 'a', made by Python's gzip.compress(b"a"*1000, mtime=0)
  const unsigned char gzip[] = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x03,
                                0x4b, 0x4c, 0x1c, 0x05, 0xa3, 0x60, 0x14, 0x0c, 0x77, 0x00,
                                0x00, 0x03, 0xda, 0x38, 0x9a, 0xe8, 0x03, 0x00, 0x00};
  HttpRequest request;
  request.fields = {{"content-encoding", "GZIP"}};
  request.body.assign(reinterpret_cast<const char*>(gzip), sizeof gzip);
  EXPECT_EQ(decoded_body(HttpRequest(request), 1000).value(), std::string(1000, 'a'));
  EXPECT_EQ(decoded_body(HttpRequest(request), 999).status().code(), StatusCode::kResourceExhausted);
  request.fields = {{"Content-Encoding", "br"}};
  EXPECT_EQ(decoded_body(HttpRequest(request), 999).status().code(), StatusCode::kUnimplemented);
}

TEST(SseWriterTest, LineBreaksCannotEndAFrame) {
  std::string out;
  append_sse_event(out, "delta", "{\"a\":1}");
  EXPECT_EQ(out, "event: delta\ndata: {\"a\":1}\n\n");
  out.clear();
  append_sse_event(out, "", "one\n\ntwo\r\nthree\rfour");
  EXPECT_EQ(out, "data: one\ndata: \ndata: two\ndata: three\ndata: four\n\n");
  out.clear();
  append_sse_comment(out, "keep-alive");
  EXPECT_EQ(out, ": keep-alive\n\n");
}

}  // namespace
}  // namespace deepinfer
