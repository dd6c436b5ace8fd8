#include "layers/kernels/cuda/open_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "framework/base/file.h"
#include "tests/testing/environment_variable.h"
#include "tests/testing/temp_dir.h"

namespace delink::cuda::open_library_test {
namespace {

using delink::testing::EnvironmentVariable;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

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
  const EnvironmentVariable root("DELINK_CUDA_ROOT", "/a/root");
  const EnvironmentVariable toolkit("CUDAToolkit_ROOT", "/a/toolkit");
  const EnvironmentVariable home("HOME", "/a/home");
  {
    const EnvironmentVariable caches("XDG_CACHE_HOME", "");
    EXPECT_THAT(
        CudaLibraryFolders(),
        ElementsAre("/a/root/lib64", "/a/root/lib", "/a/toolkit/lib64",
                    "/a/toolkit/lib", "", "/a/home/.cache/delink/cuda-13/lib64",
                    "/a/home/.cache/delink/cuda-13/lib"));
  }
  const EnvironmentVariable caches("XDG_CACHE_HOME", "/a/cache");
  EXPECT_EQ(CacheFolder(), "/a/cache/delink");
  const absl::Status status = OpenCudaLibrary("libdelinknone.so.13").status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("/a/root/lib64/libdelinknone.so.13"),
                    HasSubstr("/a/cache/delink/cuda-13/lib/"),
                    HasSubstr("tools/bootstrap.sh --cuda")));
}

}  // namespace
}  // namespace delink::cuda::open_library_test
