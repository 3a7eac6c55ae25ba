// SPDX-License-Identifier: MIT
#include "store/tenants.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace deepinfer {
namespace {

struct TenantsFile : testing::Test {
  std::string path = std::filesystem::temp_directory_path() / ("deepinfer_tenants_" + std::to_string(::getpid()));
  TenantsFile() { std::filesystem::remove(path); }
  ~TenantsFile() override { std::filesystem::remove(path); }
  StoreTenants open() {
    auto opened = StoreTenants::open(path);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(opened).value();
  }
};

}  // namespace

TEST_F(TenantsFile, RefusesWhatOthersMayReadAndWhatIsNoList) {
  std::ofstream(path) << "[]";
  ::chmod(path.c_str(), 0644);
  EXPECT_EQ(StoreTenants::open(path).status().code(), StatusCode::kInvalidArgument);
  ::chmod(path.c_str(), 0600);
  EXPECT_TRUE(StoreTenants::open(path).ok());
  std::ofstream(path) << "[{\"name\":1}]";
  EXPECT_EQ(StoreTenants::open(path).status().code(), StatusCode::kCorruption);
}

TEST_F(TenantsFile, SaltsAreSecretDifferentAndKept) {
  const std::string a = open().salt_of("a").value().salt;
  StoreTenants tenants = open();
  EXPECT_EQ(tenants.salt_of("a").value().salt, a);
  EXPECT_EQ(a.size(), 32u);
  EXPECT_NE(tenants.salt_of("b").value().salt, a);
  struct stat info {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(TenantsFile, ADroppedTenantGetsANewSaltThatSaysSo) {
  StoreTenants tenants = open();
  const std::string before = tenants.salt_of("a").value().salt;
  EXPECT_EQ(tenants.drop("a").value(), before);
  EXPECT_EQ(tenants.drop("a").value(), std::nullopt);
  EXPECT_TRUE(tenants.names().empty());
  StoreTenants again = open();
  EXPECT_NE(again.salt_of("a").value().salt, before);
  EXPECT_TRUE(again.salt_of("a").value().was_deleted);
}

}  // namespace deepinfer
