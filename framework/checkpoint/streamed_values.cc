#include "framework/checkpoint/streamed_values.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/mutex.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink {
namespace {

// Adds a range to others; false if it overlaps one of them.
bool Add(int64_t begin, int64_t end, std::map<int64_t, int64_t>& ranges) {
  const auto next = ranges.lower_bound(begin);
  if ((next != ranges.end() && next->first < end) ||
      (next != ranges.begin() && std::prev(next)->second > begin)) {
    return false;
  }
  ranges[begin] = end;
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamedValues>> StreamedValues::Open(
    const std::string& path, const Layout& layout,
    std::span<const LogicalTensor* const> tensors, bool verified) {
  std::unique_ptr<StreamedValues> streamed(new StreamedValues);
  {
    DELINK_ASSIGN_OR_RETURN(
        CheckpointValues values,
        CheckpointValues::Open(path, layout, {}, DType::kF32));
    for (const LogicalTensor* const tensor : tensors) {
      DELINK_RETURN_IF_ERROR(streamed->AddTensor(path, values, *tensor));
    }
  }
  streamed->open_.clear();
  if (!verified) DELINK_RETURN_IF_ERROR(streamed->BeginDigests(path));
  return streamed;
}

absl::Status StreamedValues::AddTensor(const std::string& path,
                                       CheckpointValues& values,
                                       const LogicalTensor& tensor) {
  DELINK_RETURN_IF_ERROR(values.Check({}, tensor));
  DELINK_ASSIGN_OR_RETURN(const std::vector<hdf5::Piece> pieces,
                          values.Pieces(tensor));
  std::vector<Piece>& mine = tensors_[tensor.name];
  for (const hdf5::Piece& piece : pieces) {
    DELINK_ASSIGN_OR_RETURN(File* const file, FileOf(path, piece.file));
    DELINK_ASSIGN_OR_RETURN(const int64_t place, PlaceOf(path, piece));
    const int64_t size = (piece.end - piece.begin) * SizeOf(DType::kF32);
    // Shared values are read once for each tensor.
    mine.push_back({.begin = piece.begin,
                    .end = piece.end,
                    .file = file,
                    .place = place,
                    .first = Add(place, place + size, file->values)});
  }
  return absl::OkStatus();
}

absl::StatusOr<StreamedValues::File*> StreamedValues::FileOf(
    const std::string& path, const std::string& name) {
  const auto known = files_.find(name);
  if (known != files_.end()) return &known->second;
  DELINK_ASSIGN_OR_RETURN(RandomAccessFile file,
                          RandomAccessFile::Open(JoinPath(path, name)));
  file.ReadPastCache();
  return &files_.try_emplace(name, File{.file = std::move(file)}).first->second;
}

absl::StatusOr<int64_t> StreamedValues::PlaceOf(const std::string& path,
                                                const hdf5::Piece& piece) {
  const auto [place, unknown] =
      places_.try_emplace({piece.file, piece.dataset}, -1);
  if (unknown) {
    auto open = open_.find(piece.file);
    if (open == open_.end()) {
      DELINK_ASSIGN_OR_RETURN(
          hdf5::File file,
          hdf5::File::OpenReadOnly(JoinPath(path, piece.file), ""));
      open = open_.emplace(piece.file, std::move(file)).first;
    }
    DELINK_ASSIGN_OR_RETURN(const hdf5::Dataset dataset,
                            open->second.OpenDataset(piece.dataset));
    place->second = dataset.place();
  }
  return place->second + piece.offset * SizeOf(DType::kF32);
}

// For all writers' files, including those that nobody reads.
absl::Status StreamedValues::BeginDigests(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<FileSum> sums, ReadSums(path));
  for (const FileSum& sum : sums) {
    if (!checkpoint::IsWriterName(sum.name)) continue;
    DELINK_ASSIGN_OR_RETURN(File* const file, FileOf(path, sum.name));
    file->digest = sum.digest;
    const RandomAccessFile& from = file->file;
    if (from.size() == 0) {
      return absl::DataLossError(absl::StrCat(from.path(), ": is empty"));
    }
    file->running = std::make_unique<RunningDigest>(
        from.size(), [&from](int64_t begin, int64_t size, char* bytes) {
          return from.Read(begin, size, bytes);
        });
    // Gaps before the last values to be read are digested between reads.
    int64_t done = 0;
    for (const auto& [begin, end] : file->values) {
      DELINK_RETURN_IF_ERROR(file->running->Skip(done, begin).status());
      done = end;
    }
  }
  return absl::OkStatus();
}

Descriptor StreamedValues::Has(const Field&,
                               const LogicalTensor& tensor) const {
  const Rect whole = WholeOf(tensor.shape);
  return {{.rect = whole, .pitch = whole.columns}};
}

absl::Status StreamedValues::Read(const Field& field,
                                  const LogicalTensor& tensor,
                                  const Extent& extent, void* values) {
  DELINK_CHECK(field.kind == Field::Kind::kParameters);
  const auto pieces = tensors_.find(tensor.name);
  DELINK_CHECK(pieces != tensors_.end()) << tensor.name;
  const Rect& rect = extent.rect;
  // Contiguous rows are one.
  const bool together = rect.rows == 1 || rect.columns == extent.pitch;
  const int64_t rows = together ? 1 : rect.rows;
  const int64_t count = rect.elements() / rows;
  for (int64_t row = 0; row < rows; ++row) {
    DELINK_RETURN_IF_ERROR(
        ReadRange(pieces->second, extent.offset + row * extent.pitch, count,
                  static_cast<float*>(values) + row * count));
  }
  return absl::OkStatus();
}

absl::Status StreamedValues::ReadRange(std::span<const Piece> pieces,
                                       int64_t begin, int64_t count,
                                       float* to) {
  if (count == 0) return absl::OkStatus();
  const int64_t end = begin + count;
  auto piece = std::ranges::upper_bound(pieces, begin, {}, &Piece::begin);
  DELINK_CHECK(piece != pieces.begin()) << begin;
  for (--piece; begin < end; ++piece) {
    const int64_t next = std::min(end, piece->end);
    const int64_t place =
        piece->place + (begin - piece->begin) * SizeOf(DType::kF32);
    const int64_t size = (next - begin) * SizeOf(DType::kF32);
    auto* const bytes = reinterpret_cast<char*>(to);
    File& file = *piece->file;
    DELINK_RETURN_IF_ERROR(file.file.Read(place, size, bytes));
    if (file.running && piece->first) {
      DELINK_RETURN_IF_ERROR(
          file.running->Take(place, {bytes, static_cast<size_t>(size)})
              .status());
    }
    to += next - begin;
    begin = next;
  }
  return absl::OkStatus();
}

absl::Status StreamedValues::FinishFile(File& file) {
  const int64_t end =
      file.values.empty() ? 0 : std::prev(file.values.end())->second;
  DELINK_RETURN_IF_ERROR(file.running->Skip(end, file.file.size()).status());
  if (file.running->Hex() == file.digest) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(file.file.path(),
                   ": damaged: its SHA-256 is not the one in ", kSumsName));
}

absl::Status StreamedValues::Finish(int threads) {
  std::vector<File*> files;
  for (auto& [name, file] : files_) {
    if (file.running) files.push_back(&file);
  }
  Mutex mutex;
  absl::Status status;
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < files.size(); i = next++) {
      const absl::Status mine = FinishFile(*files[i]);
      const MutexLock lock(mutex);
      status.Update(mine);
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  return status;
}

}  // namespace delink
