#include "offload/tiers/disk_tier.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/format_bytes.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "framework/base/xxh64.h"

namespace delink::offload {
namespace {

// Threads of a file for each direction, without io_uring.
constexpr int kMostThreads = 8;

bool Aligned(int64_t bytes) { return bytes % kDiskBlock == 0; }

// "read 4096 bytes at offset 0 of the disk tier's file, slab blocks/0/mlp".
std::string Named(bool write, int64_t bytes, int64_t offset,
                  const std::string& of, const std::string& slab) {
  return absl::StrCat(write ? "write " : "read ", bytes, " bytes at offset ",
                      offset, " of the disk tier", of, ", slab ", slab);
}

}  // namespace

struct DiskTier::File {
  TierFile file;
  // By direction: read, write. Guarded by the tier's mutex.
  std::deque<Piece*> waiting[2];
  int under_way[2] = {0, 0};
  std::unique_ptr<DiskQueue> queue;
};

// A part of a transfer in one file. As a request it is what is still to be
// moved.
class DiskTier::Piece final : public DiskRequest {
 public:
  Piece(Transfer& transfer, File& file, int64_t begin)
      : transfer(transfer), file(file), begin(begin) {}

  void Done(int64_t result) override;
  void Advance(int64_t n) {
    offset += n;
    memory += n;
    bytes -= n;
    moved += n;
  }
  int64_t total() const { return moved + bytes; }
  std::string Name() const;

  Transfer& transfer;
  File& file;
  const int64_t begin;  // in the tier
  int64_t moved = 0;
  uint64_t checksum = 0;  // of what is to be read
};

class DiskTier::Transfer final : public Pending {
 public:
  Transfer(DiskTier& tier, bool write, std::string slab)
      : tier(tier), write(write), slab(std::move(slab)) {}

  absl::StatusOr<bool> Poll() override {
    const MutexLock lock(tier.mutex_);
    if (left > 0) return false;
    if (!status.ok()) return status;
    return true;
  }

  DiskTier& tier;
  const bool write;
  const std::string slab;
  std::deque<Piece> pieces;
  // Guarded by the tier's mutex.
  size_t left = 0;
  absl::Status status;  // the first error
};

void DiskTier::Piece::Done(int64_t result) {
  transfer.tier.Finish(*this, result);
}

std::string DiskTier::Piece::Name() const {
  return Named(write, total(), offset - moved, "'s file", transfer.slab);
}

DiskTier::DiskTier(const DiskTierOptions& options)
    : piece_(options.piece), depth_(options.depth) {
  DELINK_CHECK(piece_ > 0 && Aligned(piece_)) << piece_;
  DELINK_CHECK_GE(depth_, 1);
  DELINK_CHECK(!options.folders.empty()) << "no folder for the disk tier";
}

DiskTier::~DiskTier() = default;

absl::StatusOr<std::unique_ptr<DiskTier>> DiskTier::Create(
    const DiskTierOptions& options) {
  std::unique_ptr<DiskTier> tier(new DiskTier(options));
  DELINK_RETURN_IF_ERROR(tier->OpenFiles(options));
  tier->OpenQueues(options);
  DELINK_LOG(kInfo) << "disk tier: " << FormatBytes(tier->bytes_) << " in "
                    << absl::StrJoin(options.folders, ", ") << ", moved "
                    << tier->backend_;
  return tier;
}

absl::Status DiskTier::OpenFiles(const DiskTierOptions& options) {
  const auto files = static_cast<int64_t>(options.folders.size());
  const int64_t pieces = (options.bytes + piece_ - 1) / piece_;
  bytes_ = pieces * piece_;
  for (int64_t i = 0; i < files; ++i) {
    const int64_t own = std::max<int64_t>(1, (pieces - i + files - 1) / files);
    DELINK_ASSIGN_OR_RETURN(
        TierFile file, TierFile::Create(options.folders[static_cast<size_t>(i)],
                                        own * piece_, options.direct));
    direct_ = direct_ && file.direct();
    files_.push_back(std::make_unique<File>(File{.file = std::move(file)}));
  }
  return absl::OkStatus();
}

void DiskTier::OpenQueues(const DiskTierOptions& options) {
  const absl::Status uring = OpenUring(options);
  backend_ = "by io_uring";
  if (!uring.ok()) {
    backend_ = absl::StrCat("by pread and pwrite, because ", uring.message());
    depth_ = std::min(depth_, kMostThreads);
    for (const auto& file : files_) {
      file->queue = NewThreadQueue({.descriptor = file->file.descriptor(),
                                    .direct = file->file.direct(),
                                    .most = 2 * depth_});
    }
  }
  if (!options.wrap) return;
  for (const auto& file : files_) {
    file->queue = options.wrap(file->file.descriptor(), std::move(file->queue));
  }
}

absl::Status DiskTier::OpenUring(const DiskTierOptions& options) {
  if (!options.uring) return absl::UnavailableError("io_uring is turned off");
  for (const auto& file : files_) {
    if (!file->file.direct()) {
      return absl::UnavailableError(
          absl::StrCat(file->file.folder(),
                       " is read and written through the page cache, as it ",
                       options.direct ? "has no direct I/O" : "was asked to"));
    }
    DELINK_ASSIGN_OR_RETURN(
        file->queue, NewUringQueue({.descriptor = file->file.descriptor(),
                                    .most = 2 * depth_,
                                    .buffers = options.buffers}));
  }
  return absl::OkStatus();
}

std::unique_ptr<Pending> DiskTier::Start(bool write, const DiskRegion& region) {
  auto transfer = std::make_unique<Transfer>(*this, write, region.slab);
  transfer->status = CheckRegion(write, region);
  if (!transfer->status.ok()) return transfer;
  Cut(region, *transfer);
  {
    const MutexLock lock(mutex_);
    transfer->status = FindChecksums(*transfer);
    if (!transfer->status.ok()) return transfer;
    transfer->left = transfer->pieces.size();
    for (Piece& piece : transfer->pieces) {
      piece.file.waiting[write].push_back(&piece);
    }
  }
  for (const auto& file : files_) Submit(*file, write);
  return transfer;
}

absl::Status DiskTier::CheckRegion(bool write, const DiskRegion& region) const {
  const bool inside = region.offset >= 0 && region.bytes >= 0 &&
                      region.bytes <= bytes_ - region.offset;
  const auto memory = reinterpret_cast<intptr_t>(region.memory);
  if (inside && Aligned(region.offset) && Aligned(region.bytes) &&
      Aligned(memory)) {
    return absl::OkStatus();
  }
  const std::string& folder = files_[0]->file.folder();
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": cannot ",
                   Named(write, region.bytes, region.offset, "", region.slab),
                   inside ? absl::StrCat(": offset, bytes and memory (", memory,
                                         ") must be multiples of ", kDiskBlock)
                          : absl::StrCat(": it has ", bytes_, " bytes")));
}

void DiskTier::Cut(const DiskRegion& region, Transfer& transfer) {
  const auto files = static_cast<int64_t>(files_.size());
  const int64_t end = region.offset + region.bytes;
  for (int64_t at = region.offset; at < end;) {
    const int64_t number = at / piece_;
    Piece& piece = transfer.pieces.emplace_back(
        transfer, *files_[static_cast<size_t>(number % files)], at);
    piece.write = transfer.write;
    piece.offset = number / files * piece_ + at % piece_;
    piece.memory = static_cast<char*>(region.memory) + (at - region.offset);
    piece.bytes = std::min(end, (number + 1) * piece_) - at;
    at += piece.bytes;
  }
}

absl::Status DiskTier::FindChecksums(Transfer& transfer) {
  for (Piece& piece : transfer.pieces) {
    if (transfer.write) {
      Forget(piece.begin, piece.begin + piece.bytes);
      continue;
    }
    const auto found = written_.find(piece.begin);
    if (found == written_.end() || found->second.bytes != piece.bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(piece.file.file.folder(), ": cannot ", piece.Name(),
                       ": they have not been written, or in other pieces"));
    }
    piece.checksum = found->second.checksum;
  }
  return absl::OkStatus();
}

void DiskTier::Forget(int64_t begin, int64_t end) {
  // What was written does not cross the borders of pieces.
  auto at = written_.lower_bound(begin / piece_ * piece_);
  while (at != written_.end() && at->first < end) {
    at = at->first + at->second.bytes > begin ? written_.erase(at)
                                              : std::next(at);
  }
}

void DiskTier::Submit(File& file, bool write) {
  std::vector<Piece*> next;
  {
    const MutexLock lock(mutex_);
    std::deque<Piece*>& waiting = file.waiting[write];
    while (!waiting.empty() && file.under_way[write] < depth_) {
      next.push_back(waiting.front());
      waiting.pop_front();
      ++file.under_way[write];
    }
  }
  for (Piece* const piece : next) file.queue->Submit(*piece);
}

void DiskTier::Finish(Piece& piece, int64_t result) {
  // Whole blocks, so that the rest is aligned.
  const int64_t moved = std::max<int64_t>(result, 0) / kDiskBlock * kDiskBlock;
  piece.Advance(moved);
  File& file = piece.file;
  if (result == -EINTR || (moved > 0 && piece.bytes > 0)) {
    file.queue->Submit(piece);
    return;
  }
  {
    const MutexLock lock(mutex_);
    --file.under_way[piece.write];
  }
  // Before the checksum, so that the disk goes on meanwhile.
  Submit(file, piece.write);
  const absl::StatusOr<Written> written = Check(piece, result);
  const MutexLock lock(mutex_);
  Transfer& transfer = piece.transfer;
  if (!written.ok()) {
    transfer.status.Update(written.status());
  } else if (piece.write) {
    written_[piece.begin] = *written;
  }
  --transfer.left;  // at zero its owner may destroy it and the piece
}

absl::StatusOr<DiskTier::Written> DiskTier::Check(const Piece& piece,
                                                  int64_t result) const {
  const std::string& folder = piece.file.file.folder();
  if (result < 0) {
    return FileError(static_cast<int>(-result), folder, piece.Name());
  }
  if (piece.bytes > 0) {
    return absl::Status(
        piece.write ? absl::StatusCode::kUnavailable
                    : absl::StatusCode::kDataLoss,
        absl::StrCat(folder, ": cannot ", piece.Name(), ": only ", piece.moved,
                     piece.write ? " were taken"
                                 : " are there; the file has become shorter"));
  }
  const uint64_t checksum = Xxh64(piece.memory - piece.moved, piece.moved);
  if (!piece.write && checksum != piece.checksum) {
    return absl::DataLossError(absl::StrCat(
        folder, ": ", piece.Name(),
        ": these are not the bytes that were written (checksum ",
        absl::Hex(checksum), " instead of ", absl::Hex(piece.checksum),
        "); the disk may be failing: see the system's log"));
  }
  return Written{.bytes = piece.moved, .checksum = checksum};
}

}  // namespace delink::offload
