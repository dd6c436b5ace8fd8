#include "layers/kernels/cuda/open_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::cuda::open_library_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Has its way with the environment until the end of the test.
class ScopedEnvironment {
 public:
  ScopedEnvironment(const char* name, const char* value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    had_ = before != nullptr;
    setenv(name, value, 1);
  }
  ~ScopedEnvironment() {
    if (had_) setenv(name_, before_.c_str(), 1);
    if (!had_) unsetenv(name_);
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const char* const name_;
  std::string before_;
  bool had_ = false;
};

TEST(SharedLibrary, IsFoundWhereTheSystemLooks) {
  const std::string folders[] = {"/no/such/folder", ""};
  const auto library = SharedLibrary::Open("libm.so.6", folders, "mend");
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->folder(), "");
  double (*cosine)(double) = nullptr;
  ASSERT_TRUE(library->Find("cos", &cosine).ok());
  EXPECT_EQ(cosine(0.5), std::cos(0.5));
  const absl::Status status = library->Find("cosinus", &cosine);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(cosine, nullptr);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libm.so.6"), HasSubstr("cosinus"),
                    HasSubstr("another version")));
}

TEST(SharedLibrary, WhatIsNotThereIsToldWithWhereItWasLookedFor) {
  const testing::TempDir dir;
  ASSERT_TRUE(WriteFile(dir.path() + "/libnone.so.1", "no library").ok());
  const std::string folders[] = {dir.path(), "/no/such/folder", ""};
  const auto library =
      SharedLibrary::Open("libnone.so.1", folders, "build it first");
  EXPECT_TRUE(absl::IsNotFound(library.status()));
  EXPECT_THAT(std::string(library.status().message()),
              AllOf(HasSubstr(dir.path() + "/libnone.so.1"),
                    HasSubstr("/no/such/folder/libnone.so.1"),
                    HasSubstr("build it first")));
}

TEST(CudaLibraries, AreLookedForWhereTheEnvironmentSays) {
  const ScopedEnvironment root("DELINK_CUDA_ROOT", "/a/root");
  const ScopedEnvironment toolkit("CUDAToolkit_ROOT", "/a/toolkit");
  const ScopedEnvironment home("HOME", "/a/home");
  {
    const ScopedEnvironment caches("XDG_CACHE_HOME", "");
    EXPECT_THAT(
        CudaLibraryFolders(),
        ElementsAre("/a/root/lib64", "/a/root/lib", "/a/toolkit/lib64",
                    "/a/toolkit/lib", "", "/a/home/.cache/delink/cuda-13/lib64",
                    "/a/home/.cache/delink/cuda-13/lib"));
  }
  const ScopedEnvironment caches("XDG_CACHE_HOME", "/a/cache");
  EXPECT_EQ(CacheFolder(), "/a/cache/delink");
  const absl::Status status = OpenCudaLibrary("libdelinknone.so.13").status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/a/root/lib64/libdelinknone.so.13"),
                    HasSubstr("/a/cache/delink/cuda-13/lib/"),
                    HasSubstr("tools/bootstrap.sh --cuda")));
}

}  // namespace
}  // namespace delink::cuda::open_library_test
