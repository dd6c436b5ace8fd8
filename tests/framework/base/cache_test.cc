// What of a file is in the system's cache.
#include "framework/base/cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::cache_test {
namespace {

constexpr int64_t kPart = 1 << 20;

class Cache : public ::testing::Test {
 protected:
  Cache() : file_(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {}
  ~Cache() override { ::close(file_); }

  void Append(char with) {
    const std::string part(kPart, with);
    ASSERT_EQ(::write(file_, part.data(), part.size()), kPart);
    ASSERT_EQ(::fsync(file_), 0);
    end_ += kPart;
  }
  // Bytes of the file's part `i` that are in the cache.
  int64_t Cached(int64_t i) const {
    void* const memory =
        ::mmap(nullptr, kPart, PROT_READ, MAP_SHARED, file_, i * kPart);
    const int64_t page = ::sysconf(_SC_PAGESIZE);
    std::vector<unsigned char> pages(static_cast<size_t>(kPart / page));
    EXPECT_EQ(::mincore(memory, kPart, pages.data()), 0);
    ::munmap(memory, kPart);
    return page * std::ranges::count_if(
                      pages, [](unsigned char in) { return (in & 1) != 0; });
  }

  const TempDir dir_;
  const std::string path_ = dir_ / "file";
  const int file_;
  int64_t end_ = 0;
};

TEST_F(Cache, LetsGo) {
  for (char with = 'a'; with < 'k'; ++with) Append(with);
  ASSERT_EQ(Cached(0), kPart);
  LetCacheGoOf(path_);
  if (Cached(0) > 0) GTEST_SKIP() << "files here are in memory alone";
  EXPECT_EQ(Cached(9), 0);
  // The same of what has been written behind, once the rest is.
  WriteBehind behind(kPart);
  ASSERT_EQ(ReadFile(path_)->size(), static_cast<size_t>(end_));
  ASSERT_EQ(Cached(0), kPart);
  behind.Done(file_, end_);
  EXPECT_EQ(Cached(0), 0);
  EXPECT_EQ(Cached(5), 0);
  EXPECT_EQ(Cached(6), kPart);
  EXPECT_EQ(*FileSize(path_), end_);
  LetCacheGoOf(dir_ / "none");
}

}  // namespace
}  // namespace delink::testing::cache_test
