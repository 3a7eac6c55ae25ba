// SPDX-License-Identifier: MIT
#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace deepinfer {
namespace {

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd > 2) ::close(fd);
  }
};

Status open_error(const std::string& path) {
  const std::string message = fmt::format("{}: {}", path, std::strerror(errno));
  return errno == ENOENT ? not_found(message) : invalid_argument(message);
}

Result<std::string> read_all(int fd, const std::string& path, size_t bytes_max) {
  std::string out;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return open_error(path);
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > bytes_max)
      return resource_exhausted(fmt::format("{}: more than {} bytes", path, bytes_max));
    out.append(buffer, static_cast<size_t>(n));
  }
}

Status write_all(int fd, const std::string& path, std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unavailable(fmt::format("{}: {}", path, std::strerror(errno)));
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return open_error(path);
  struct stat info {};
  if (::fstat(file.fd, &info) != 0) return open_error(path);
  if (!S_ISREG(info.st_mode)) return invalid_argument(path + ": is not a regular file");
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (data == MAP_FAILED) return open_error(path);
  return MappedFile(static_cast<const uint8_t*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}
MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Result<std::string> gunzip(std::span<const uint8_t> bytes, size_t bytes_max) {
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) return internal_error("zlib: cannot start");
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  char buffer[1 << 16];
  int code = Z_OK;
  while (code == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(buffer);
    stream.avail_out = sizeof buffer;
    code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) break;
    out.append(buffer, sizeof buffer - stream.avail_out);
    if (out.size() > bytes_max) break;
    if (code == Z_STREAM_END && stream.avail_in > 0) code = inflateReset(&stream);  // concatenated members
  }
  inflateEnd(&stream);
  if (out.size() > bytes_max) return resource_exhausted(fmt::format("gzip: inflates to more than {} bytes", bytes_max));
  if (code != Z_STREAM_END) return corruption("gzip: the stream is damaged or cut short");
  return out;
}

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  const FileDescriptor file{path == "-" ? 0 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return open_error(path);
  ASSIGN_OR_RETURN(std::string raw, read_all(file.fd, path, bytes_max));
  if (!path.ends_with(".gz")) return raw;
  auto inflated = gunzip({reinterpret_cast<const uint8_t*>(raw.data()), raw.size()}, bytes_max);
  if (!inflated.ok()) return inflated.status().prefixed(path);
  return inflated;
}

Status write_file_atomically(const std::string& path, std::span<const uint8_t> bytes) {
  if (path == "-") return write_all(1, "standard output", bytes);
  const std::string temporary = path + ".partial";
  {
    const FileDescriptor file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
    if (file.fd < 0) return open_error(temporary);
    if (Status s = write_all(file.fd, temporary, bytes); !s.ok()) {
      ::unlink(temporary.c_str());
      return s;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return open_error(path);
  return {};
}
Status write_file_atomically(const std::string& path, const std::string& text) {
  return write_file_atomically(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

}  // namespace deepinfer
