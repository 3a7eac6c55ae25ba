// SPDX-License-Identifier: MIT
#include "store/tenants.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/entropy.h"
#include "base/file.h"
#include "base/json.h"

namespace deepinfer {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;

Result<std::pair<std::string, TenantSalt>> tenant_of(const Json& item) {
  const Json* const name = item.find("name");
  const Json* const salt = item.find("salt");
  const Json* const deleted = item.find("was_deleted");
  if (!name || !name->is_string() || !salt || !salt->is_string() || !deleted || !deleted->is_bool())
    return corruption("expected objects with name, salt and was_deleted");
  return std::pair(name->as_string(), TenantSalt{salt->as_string(), deleted->as_bool()});
}

}  // namespace

Result<StoreTenants> StoreTenants::open(const std::string& path) {
  StoreTenants tenants;
  tenants.path_ = path;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return tenants;
  if ((info.st_mode & 077) != 0) return invalid_argument(path + ": others may read these salts; chmod 600 it");
  ASSIGN_OR_RETURN(const std::string text, read_file(path, kFileBytesMax));
  auto json = parse_json(text);
  if (!json.ok()) return corruption(path + ": " + json.status().message());
  if (!json.value().is_array()) return corruption(path + ": expected an array");
  for (const Json& item : json.value().as_array()) {
    auto tenant = tenant_of(item);
    if (!tenant.ok()) return tenant.status().prefixed(path);
    tenants.tenants_.insert(std::move(tenant).value());
  }
  return tenants;
}

Status StoreTenants::save() const {
  Json::Array items;
  for (const auto& [name, salt] : tenants_)
    items.push_back(Json::Object{{"name", name}, {"salt", salt.salt}, {"was_deleted", salt.was_deleted}});
  const std::string text = to_json(Json(std::move(items)), {.indent = 1}) + "\n";
  const std::string partial = path_ + ".partial";
  const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return unavailable(fmt::format("{}: {}", partial, std::strerror(errno)));
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  ::close(fd);
  if (!written || ::rename(partial.c_str(), path_.c_str()) != 0)
    return unavailable(fmt::format("{}: {}", path_, std::strerror(errno)));
  return {};
}

Result<TenantSalt> StoreTenants::salt_of(const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  TenantSalt& salt = tenants_[tenant];
  if (salt.salt.empty()) {
    salt.salt = entropy_hex(16);
    if (const Status status = save(); !status.ok()) {
      salt.salt.clear();
      return status;
    }
  }
  return salt;
}

Result<std::optional<std::string>> StoreTenants::drop(const std::string& tenant) {
  const std::lock_guard lock(mutex_);
  const auto at = tenants_.find(tenant);
  if (at == tenants_.end() || at->second.salt.empty()) return std::optional<std::string>();
  const std::string gone = at->second.salt;
  at->second = {.was_deleted = true};
  if (const Status status = save(); !status.ok()) {
    at->second.salt = gone;
    return status;
  }
  return std::optional(gone);
}

std::vector<std::string> StoreTenants::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, salt] : tenants_)
    if (!salt.salt.empty()) names.push_back(name);
  return names;
}

}  // namespace deepinfer
