// SPDX-License-Identifier: MIT
#include "net/load_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

namespace deepinfer {
namespace {

// One answer as it comes: where it ends, and the events in it.
class AnswerScanner {
 public:
  // Reads what belongs to the answer, calls on_event for each event and on_mark for each mark, returns the bytes used.
  template <typename OnEvent, typename OnMark>
  size_t read(std::string_view bytes, char mark, const OnEvent& on_event, const OnMark& on_mark) {
    const auto on_char = [&](char c) { read_char(c, mark, on_event, on_mark); };
    size_t used = 0;
    while (used < bytes.size() && !is_done_) used += step(bytes.substr(used), on_char);
    return used;
  }
  bool is_done() const { return is_done_; }
  bool is_ok() const { return status_ == 200; }
  int64_t num_events() const { return num_events_; }

 private:
  enum class Place { kHead, kBody, kSize, kChunk, kChunkEnd };

  template <typename OnChar>
  size_t step(std::string_view bytes, const OnChar& on_char) {
    switch (place_) {
      case Place::kHead: return line(bytes, "\r\n\r\n", [this] { read_head(); });
      case Place::kSize: return line(bytes, "\r\n", [this] { read_size(); });
      case Place::kChunkEnd:
        return line(bytes, "\r\n", [this] {
          place_ = Place::kSize;
          is_done_ = is_last_;
        });
      case Place::kBody:
      case Place::kChunk: break;
    }
    const std::string_view piece = bytes.substr(0, left_);
    for (const char c : piece) on_char(c);
    left_ -= piece.size();
    if (left_ == 0 && place_ == Place::kBody) is_done_ = true;
    if (left_ == 0 && place_ == Place::kChunk) place_ = Place::kChunkEnd;
    return piece.size();
  }

  // An empty line ends an event; one that begins with ':' is a comment.
  template <typename OnEvent, typename OnMark>
  void read_char(char c, char mark, const OnEvent& on_event, const OnMark& on_mark) {
    if (c != '\n') {
      if (c == mark && has_data_) on_mark(num_marks_++);
      if (line_bytes_++ == 0 && c == 'd') has_data_ = true;
      return;
    }
    if (line_bytes_ == 0 && std::exchange(has_data_, false)) on_event(num_events_++);
    line_bytes_ = 0;
  }

  template <typename Then>
  size_t line(std::string_view bytes, std::string_view end, const Then& then) {
    const size_t before = pending_.size();
    pending_ += bytes;
    const size_t at = pending_.find(end, before < end.size() ? 0 : before - end.size());
    if (at == std::string::npos) return bytes.size();
    const size_t used = at + end.size() - before;
    pending_.resize(at);
    then();
    pending_.clear();
    return used;
  }

  void read_head() {
    std::from_chars(pending_.data() + std::min<size_t>(9, pending_.size()), pending_.data() + pending_.size(), status_);
    constexpr std::string_view kLength = "Content-Length: ";
    if (const size_t at = pending_.find(kLength); at != std::string::npos) {
      std::from_chars(pending_.data() + at + kLength.size(), pending_.data() + pending_.size(), left_);
      place_ = Place::kBody;
      is_done_ = left_ == 0;
    } else {
      place_ = Place::kSize;
    }
  }

  void read_size() {
    left_ = 0;
    std::from_chars(pending_.data(), pending_.data() + pending_.size(), left_, 16);
    is_last_ = left_ == 0;
    place_ = is_last_ ? Place::kChunkEnd : Place::kChunk;
  }

  Place place_ = Place::kHead;
  std::string pending_;
  int status_ = 0;
  size_t left_ = 0;  // of the body or chunk
  bool is_last_ = false, is_done_ = false, has_data_ = false;
  int64_t line_bytes_ = 0, num_events_ = 0, num_marks_ = 0;
};

class Load {
 public:
  Load(const LoadOptions& options, const Clock& clock) : options_(options), clock_(clock), buffer_(64 << 10) {}
  ~Load() {
    for (const Connection& one : connections_)
      if (one.fd >= 0) ::close(one.fd);
    if (epoll_ >= 0) ::close(epoll_);
  }

  Result<LoadFigures> run() {
    figures_.events_of.resize(static_cast<size_t>(options_.num_connections));
    epoll_ = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_ < 0) return unavailable(std::string("epoll: ") + std::strerror(errno));
    connections_.resize(static_cast<size_t>(options_.num_connections));
    for (int i = 0; i < options_.num_connections; ++i) TRY(open(i));
    const int64_t begin_ns = clock_.monotonic_ns(), cpu_begin_ns = thread_cpu_ns();
    for (int i = 0; i < options_.num_connections; ++i) send(i);
    while (num_open_ > 0 && clock_.monotonic_ns() - begin_ns < options_.duration_ns) wait();
    figures_.seconds = static_cast<double>(clock_.monotonic_ns() - begin_ns) * 1e-9;
    figures_.cpu_ns = thread_cpu_ns() - cpu_begin_ns;
    return std::move(figures_);
  }

 private:
  struct Connection {
    int fd = -1;
    std::string request;
    size_t num_sent = 0;
    int64_t num_requests = 0;
    AnswerScanner answer;
  };

  Status open(int i) {
    Connection& one = connections_[static_cast<size_t>(i)];
    one.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (one.fd < 0) return unavailable(std::string("socket: ") + std::strerror(errno));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(options_.port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(one.fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
      return unavailable(std::string("connect: ") + std::strerror(errno));
    const int yes = 1;
    setsockopt(one.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    one.request = options_.request(i);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(i);
    if (epoll_ctl(epoll_, EPOLL_CTL_ADD, one.fd, &event) != 0)
      return unavailable(std::string("epoll: ") + std::strerror(errno));
    ++num_open_;
    return {};
  }

  void close(Connection& one, bool is_error) {
    if (is_error) ++figures_.num_errors;
    ::close(std::exchange(one.fd, -1));
    --num_open_;
  }

  // Requests are small: what a socket's buffer does not take at once would be one.
  void send(int i) {
    Connection& one = connections_[static_cast<size_t>(i)];
    if (options_.requests_max > 0 && one.num_requests++ == options_.requests_max) return close(one, false);
    one.answer = AnswerScanner();
    if (options_.on_sent) options_.on_sent(i, clock_.monotonic_ns());
    const ssize_t sent = ::send(one.fd, one.request.data(), one.request.size(), MSG_NOSIGNAL);
    if (sent != static_cast<ssize_t>(one.request.size())) close(one, true);
  }

  void wait() {
    epoll_event events[512];
    const int num_events = epoll_wait(epoll_, events, 512, 50);
    for (int i = 0; i < num_events; ++i) receive(static_cast<int>(events[i].data.u32));
  }

  void receive(int i) {
    Connection& one = connections_[static_cast<size_t>(i)];
    if (one.fd < 0) return;
    const ssize_t received = ::recv(one.fd, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) return close(one, true);
    figures_.num_bytes += received;
    const int64_t now_ns = options_.on_event || options_.on_mark ? clock_.monotonic_ns() : 0;
    const auto on_event = [&](int64_t event) {
      ++figures_.num_events;
      ++figures_.events_of[static_cast<size_t>(i)];
      if (options_.on_event) options_.on_event(i, event, now_ns);
    };
    const auto on_mark = [&](int64_t number) {
      if (options_.on_mark) options_.on_mark(i, number, now_ns);
    };
    one.answer.read({buffer_.data(), static_cast<size_t>(received)}, options_.mark, on_event, on_mark);
    if (!one.answer.is_done()) return;
    ++figures_.num_answers;
    if (!one.answer.is_ok()) ++figures_.num_errors;
    send(i);
  }

  const LoadOptions& options_;
  const Clock& clock_;
  std::vector<char> buffer_;
  std::vector<Connection> connections_;
  LoadFigures figures_;
  int epoll_ = -1;
  int num_open_ = 0;
};

}  // namespace

Result<LoadFigures> run_load(const LoadOptions& options, const Clock& clock) { return Load(options, clock).run(); }

}  // namespace deepinfer
