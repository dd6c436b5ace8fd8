// Random transfers against a model in memory; where files may lie, and what is
// left of them.
#include "offload/tiers/disk_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/device/huge_pages.h"
#include "tests/offload/tiers/faulty_queue.h"
#include "tests/testing/temp_dir.h"

namespace delink::disk_tier_test {
namespace {

using offload::DiskRegion;
using offload::DiskRequest;
using offload::DiskTier;
using offload::DiskTierOptions;
using offload::kDiskBlock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SmallDisk;
using testing::TempDir;

// An effective user who is not root and may not lock memory.
class Nobody {
 public:
  Nobody() { root_ = geteuid() == 0 && seteuid(65534) == 0; }
  ~Nobody() {
    if (root_ && seteuid(0) != 0) std::abort();
  }

 private:
  bool root_ = false;
};

class Limit {
 public:
  Limit(int resource, rlim_t bytes) : resource_(resource) {
    getrlimit(resource_, &before_);
    const rlimit less = {bytes, before_.rlim_max};
    setrlimit(resource_, &less);
  }
  ~Limit() { setrlimit(resource_, &before_); }

 private:
  const int resource_;
  rlimit before_;
};

struct Transfer {
  bool write = false;
  int64_t begin = 0, end = 0;  // blocks
  std::unique_ptr<Pending> pending;
};

// What the tier holds, block by block.
class Model {
 public:
  Model(int64_t blocks, int64_t piece, char* memory, std::mt19937& random)
      : piece_(piece), memory_(memory), random_(random), state_(blocks) {}

  // Transfers of which no two meet, in random order.
  void Round(DiskTier& tier) {
    std::vector<Transfer> round;
    for (int64_t at = 0; at < blocks();) {
      const int64_t end = std::min(blocks(), at + Below(3 * piece_) + 1);
      // A place that was written before, or any.
      if (Below(4) > 0) round.push_back({Below(2) == 0, at, end});
      at = end + Below(2) * Below(piece_);
    }
    if (!last_.empty() && Below(2) == 0) round = std::move(last_);
    last_.clear();
    std::ranges::shuffle(round, random_);
    for (Transfer& t : round) Begin(tier, t);
    for (Transfer& t : round) {
      End(t);
      last_.push_back({false, t.begin, t.end});
    }
  }

 private:
  struct Block {
    uint64_t value = 0;                        // of all its words
    int64_t piece_begin = -1, piece_end = -1;  // that it was written in
  };

  int64_t blocks() const { return static_cast<int64_t>(state_.size()); }
  Block& At(int64_t block) { return state_[static_cast<size_t>(block)]; }
  int64_t Below(int64_t n) {
    return std::uniform_int_distribution<int64_t>(0, n - 1)(random_);
  }
  uint64_t* Words(int64_t block) {
    return reinterpret_cast<uint64_t*>(memory_ + block * kDiskBlock);
  }
  static constexpr int64_t kWords = kDiskBlock / 8;

  void Begin(DiskTier& tier, Transfer& t) {
    for (int64_t b = t.begin; b < t.end; ++b) {
      const uint64_t value = t.write ? random_() : 0;
      for (int64_t i = 0; i < kWords; ++i) {
        Words(b)[i] = value * static_cast<uint64_t>(i + 1);
      }
      if (!t.write) continue;
      const int64_t own = b / piece_ * piece_;
      At(b) = {value, std::max(own, t.begin), std::min(own + piece_, t.end)};
    }
    const DiskRegion region = {.offset = t.begin * kDiskBlock,
                               .bytes = (t.end - t.begin) * kDiskBlock,
                               .memory = Words(t.begin),
                               .slab = "blocks/0/mlp"};
    t.pending = t.write ? tier.Write(region) : tier.Read(region);
  }

  // Whether the blocks are pieces that were written, whole.
  bool Readable(int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t own = b / piece_ * piece_;
      if (At(b).piece_begin != std::max(own, begin) ||
          At(b).piece_end != std::min(own + piece_, end)) {
        return false;
      }
    }
    return true;
  }

  void End(Transfer& t) {
    const absl::Status status = t.pending->Wait();
    if (!t.write && !Readable(t.begin, t.end)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      return;
    }
    ASSERT_TRUE(status.ok()) << status;
    for (int64_t b = t.begin; b < t.end; ++b) {
      for (int64_t i = 0; i < kWords; ++i) {
        ASSERT_EQ(Words(b)[i], At(b).value * static_cast<uint64_t>(i + 1))
            << "block " << b << ", word " << i;
      }
    }
  }

  const int64_t piece_;  // blocks
  char* const memory_;
  std::mt19937& random_;
  std::vector<Block> state_;
  std::vector<Transfer> last_;
};

// The system moves fewer bytes than it is asked for, or is interrupted.
testing::DiskFaults Ragged(unsigned seed) {
  const auto random = std::make_shared<std::mt19937>(seed);
  return {
      .before =
          [random](DiskRequest& request) {
            const int64_t blocks = request.bytes / kDiskBlock;
            request.bytes =
                static_cast<int64_t>((*random)() % blocks + 1) * kDiskBlock;
          },
      .after = [random](const DiskRequest& request, int64_t result) -> int64_t {
        if ((*random)() % 8 == 0) return -EINTR;
        // Part of a block, as at the end of a file.
        return result > kDiskBlock && (*random)() % 4 == 0 ? result - 100
                                                           : result;
      }};
}

TEST(DiskTier, RandomTransfersAreAsInMemory) {
  const TempDir folders[] = {{}, {}, {}};
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int64_t piece = int64_t{1} << random() % 5, blocks = 16 * piece;
    const HostMemory memory = AllocateHugePages(blocks * kDiskBlock);
    char* const bytes = static_cast<char*>(memory.get());
    DiskTierOptions options = {.bytes = blocks * kDiskBlock,
                               .piece = piece * kDiskBlock,
                               .depth = 1 + static_cast<int>(random() % 9),
                               .uring = seed % 3 > 0,
                               .direct = seed % 5 > 0};
    for (unsigned i = 0; i <= random() % 3; ++i) {
      options.folders.push_back(folders[i].path());
    }
    // Borders of buffers lie within pieces.
    const auto half = static_cast<size_t>(blocks / 2 * kDiskBlock);
    const size_t odd = half + kDiskBlock;
    if (random() % 2 == 0) {
      options.buffers = {{bytes + odd, half / 2}, {bytes, odd}};
    }
    if (random() % 2 == 0) {
      options.wrap = [&](int, std::unique_ptr<offload::DiskQueue> inner) {
        return std::make_unique<testing::FaultyQueue>(std::move(inner),
                                                      Ragged(seed));
      };
    }
    const auto tier = DiskTier::Create(options);
    ASSERT_TRUE(tier.ok()) << tier.status();
    Model model(blocks, piece, bytes, random);
    for (int round = 0; round < 12; ++round) model.Round(**tier);
    if (HasFailure()) return;
  }
}

// A region of 64 KiB in memory of its own.
class Slab {
 public:
  explicit Slab(char value) : memory_(AllocateHugePages(kBytes)) {
    std::memset(memory_.get(), value, kBytes);
  }
  DiskRegion region() const {
    return {.offset = 0, .bytes = kBytes, .memory = memory_.get()};
  }
  char front() const { return *static_cast<char*>(memory_.get()); }

  static constexpr int64_t kBytes = 1 << 16;

 private:
  HostMemory memory_;
};

// Writes, and reads back.
absl::Status Use(DiskTier& tier, char value) {
  const Slab out(value), back('?');
  absl::Status status = tier.Write(out.region())->Wait();
  status.Update(tier.Read(back.region())->Wait());
  EXPECT_TRUE(!status.ok() || back.front() == value);
  return status;
}

DiskTierOptions In(const std::string& folder) {
  return {.folders = {folder}, .bytes = 1 << 20};
}

TEST(DiskTier, TiersOfOneFolderDoNotMeet) {
  const TempDir dir;
  const auto one = DiskTier::Create(In(dir.path())),
             other = DiskTier::Create(In(dir.path()));
  ASSERT_TRUE(one.ok() && other.ok()) << one.status() << other.status();
  const Slab a('a'), b('b'), back('?');
  ASSERT_TRUE((*one)->Write(a.region())->Wait().ok());
  ASSERT_TRUE((*other)->Write(b.region())->Wait().ok());
  EXPECT_TRUE((*one)->Read(back.region())->Wait().ok());
  EXPECT_EQ(back.front(), 'a');
  EXPECT_THAT(*ListDirectory(dir.path()), IsEmpty());
}

TEST(DiskTier, NothingIsLeftOfAKilledProcess) {
  const TempDir dir;
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto tier = DiskTier::Create(In(dir.path()));
    const char ok = tier.ok() && Use(**tier, 'x').ok();
    if (write(pipe[1], &ok, 1) == 1) pause();
    _exit(1);
  }
  char ok = 0;
  EXPECT_EQ(read(pipe[0], &ok, 1), 1);
  EXPECT_EQ(ok, 1);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_THAT(*ListDirectory(dir.path()), IsEmpty());
  close(pipe[0]);
  close(pipe[1]);
}

void ExpectRefused(const DiskTierOptions& options, absl::StatusCode code,
                   const std::string& why) {
  const absl::Status status = DiskTier::Create(options).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(options.folders[0]), HasSubstr(why)));
}

TEST(DiskTier, FoldersThatCannotServeAreNamed) {
  using enum absl::StatusCode;
  const TempDir dir;
  ASSERT_TRUE(WriteFile(dir / "file", "").ok());
  ExpectRefused(In(dir / "none"), kNotFound, "check the path");
  ExpectRefused(In(dir / "file"), kInvalidArgument, "Not a directory");
  DiskTierOptions large = In(dir.path());
  large.bytes = int64_t{1} << 50;
  ExpectRefused(large, kResourceExhausted, " missing; free space there");
  {
    std::signal(SIGXFSZ, SIG_IGN);
    const Limit limit(RLIMIT_FSIZE, 1 << 19);
    ExpectRefused(In(dir.path()), kResourceExhausted, "ulimit -f");
  }
  ASSERT_EQ(chmod(dir.path().c_str(), 0555), 0);
  const Nobody nobody;
  ExpectRefused(In(dir.path()), kPermissionDenied, "permissions");
}

TEST(DiskTier, SaysWhatASmallDiskLacks) {
  const SmallDisk disk("640k");
  if (!disk.mounted()) GTEST_SKIP() << "cannot mount a tmpfs (needs root)";
  ExpectRefused(In(disk.path()), absl::StatusCode::kResourceExhausted,
                "for the disk tier: No space left on device: 640.0 KiB free, "
                "384.0 KiB missing");
  DiskTierOptions small = In(disk.path());
  small.bytes = small.piece = 1 << 19;
  const auto tier = DiskTier::Create(small);
  ASSERT_TRUE(tier.ok()) << tier.status();
  EXPECT_TRUE(Use(**tier, 'x').ok());
}

TEST(DiskTier, WorksWithoutDirectIo) {
  const TempDir dir;
  if (mount("ramfs", dir.path().c_str(), "ramfs", 0, nullptr) != 0) {
    GTEST_SKIP() << "cannot mount a ramfs (needs root)";
  }
  {
    const auto tier = DiskTier::Create(In(dir.path()));
    ASSERT_TRUE(tier.ok()) << tier.status();
    EXPECT_FALSE((*tier)->direct());
    EXPECT_THAT((*tier)->backend(), HasSubstr("it has no direct I/O"));
    EXPECT_TRUE(Use(**tier, 'x').ok());
  }
  umount2(dir.path().c_str(), MNT_DETACH);
}

// Where the page cache is used, nothing of it stays.
TEST(DiskTier, LeavesThePageCache) {
  const TempDir dir;
  struct statfs disk;
  ASSERT_EQ(statfs(dir.path().c_str(), &disk), 0);
  if (disk.f_type == TMPFS_MAGIC) GTEST_SKIP() << "a tmpfs is in the cache";
  for (const bool direct : {true, false}) {
    DiskTierOptions options = In(dir.path());
    options.direct = direct;
    int file = -1;
    options.wrap = [&](int descriptor,
                       std::unique_ptr<offload::DiskQueue> inner) {
      file = descriptor;
      return inner;
    };
    const auto tier = DiskTier::Create(options);
    ASSERT_TRUE(tier.ok()) << tier.status();
    EXPECT_TRUE(Use(**tier, 'x').ok());
    void* const mapped =
        mmap(nullptr, Slab::kBytes, PROT_READ, MAP_SHARED, file, 0);
    ASSERT_NE(mapped, MAP_FAILED);
    std::vector<unsigned char> cached(Slab::kBytes / kDiskBlock);
    EXPECT_EQ(mincore(mapped, Slab::kBytes, cached.data()), 0);
    EXPECT_THAT(cached, ::testing::Each(0)) << direct;
    munmap(mapped, Slab::kBytes);
  }
}

TEST(DiskTier, SaysWhyItGoesWithoutIoUring) {
  const TempDir dir;
  ASSERT_EQ(chmod(dir.path().c_str(), 0777), 0);
  DiskTierOptions options = In(dir.path());
  options.uring = false;
  const auto without = DiskTier::Create(options);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ((*without)->backend(),
            "by pread and pwrite, because io_uring is turned off");
  EXPECT_TRUE(Use(**without, 'x').ok());
  options.uring = true;
  const auto with = DiskTier::Create(options);
  ASSERT_TRUE(with.ok()) << with.status();
  if ((*with)->backend() != "by io_uring") GTEST_SKIP() << (*with)->backend();
  const Slab slab(0);
  options.buffers = {{static_cast<char*>(slab.region().memory), Slab::kBytes}};
  const Limit limit(RLIMIT_MEMLOCK, 1 << 16);
  const Nobody nobody;
  const auto limited = DiskTier::Create(options);
  ASSERT_TRUE(limited.ok()) << limited.status();
  EXPECT_THAT((*limited)->backend(),
              AllOf(HasSubstr("by pread and pwrite"), HasSubstr("ulimit -l")));
  EXPECT_TRUE(Use(**limited, 'y').ok());
}

}  // namespace
}  // namespace delink::disk_tier_test
