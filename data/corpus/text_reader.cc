#include "data/corpus/text_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPiece = 64 << 10;

// A gzipped file ends in the size of its text, modulo 2^32.
absl::StatusOr<TextFile> Describe(const std::string& path) {
  TextFile file;
  file.path = path;
  DELINK_ASSIGN_OR_RETURN(file.bytes, FileSize(path));
  std::ifstream in(path, std::ios::binary);
  if (!in) return FileError(errno, path, "open for reading");
  unsigned char magic[2] = {0, 0};
  in.read(reinterpret_cast<char*>(magic), 2);
  file.gzipped = in && magic[0] == 0x1F && magic[1] == 0x8B;
  if (!file.gzipped) return file;
  unsigned char trailer[4] = {0, 0, 0, 0};
  in.seekg(-4, std::ios::end);
  in.read(reinterpret_cast<char*>(trailer), 4);
  file.bytes = 0;
  for (int i = 3; i >= 0; --i) file.bytes = file.bytes << 8 | trailer[i];
  return file;
}

absl::StatusOr<std::vector<std::string>> FilesBelow(const std::string& dir) {
  std::vector<std::string> paths;
  std::error_code error;
  fs::recursive_directory_iterator it(dir, error);
  for (; !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    if (it->is_regular_file(error)) paths.push_back(it->path().string());
  }
  if (error) return FileError(error.value(), dir, "list folder");
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Where to end a piece of `text` that goes on after it.
size_t PieceEnd(const std::string& text) {
  const size_t newline = text.rfind('\n', kPiece - 1);
  if (newline != std::string::npos) return newline + 1;
  const size_t space = text.rfind(' ', kPiece - 1);
  if (space != std::string::npos && space > 0) return space;
  return CharacterBoundary(text, kPiece);
}

}  // namespace

absl::StatusOr<std::vector<TextFile>> ListTextFiles(
    const std::vector<std::string>& inputs) {
  std::vector<TextFile> files;
  for (const std::string& input : inputs) {
    std::vector<std::string> paths = {input};
    if (IsDirectory(input)) {
      DELINK_ASSIGN_OR_RETURN(paths, FilesBelow(input));
    }
    for (const std::string& path : paths) {
      std::error_code error;
      if (PathExists(path) && !fs::is_regular_file(path, error)) {
        return absl::InvalidArgumentError(absl::StrCat(
            path,
            ": not a file; inputs are read more than once, so write what "
            "a pipe gives to a file first"));
      }
      DELINK_ASSIGN_OR_RETURN(TextFile file, Describe(path));
      files.push_back(std::move(file));
    }
  }
  return files;
}

struct TextReader::Stream {
  std::string path;
  gzFile file = nullptr;
  ~Stream() {
    if (file != nullptr) gzclose_r(file);
  }
};

TextReader::TextReader(std::unique_ptr<Stream> stream)
    : stream_(std::move(stream)) {}
TextReader::TextReader(TextReader&&) noexcept = default;
TextReader& TextReader::operator=(TextReader&&) noexcept = default;
TextReader::~TextReader() = default;

absl::StatusOr<TextReader> TextReader::Open(const std::string& path) {
  auto stream = std::make_unique<Stream>();
  stream->path = path;
  errno = 0;
  // Reads what is not gzipped as it is.
  stream->file = gzopen(path.c_str(), "rb");
  if (stream->file == nullptr) {
    return FileError(errno, path, "open for reading");
  }
  gzbuffer(stream->file, 256 << 10);
  return TextReader(std::move(stream));
}

absl::Status TextReader::Fill() {
  const size_t old = buffer_.size();
  buffer_.resize(kPiece + 4);
  const int got = gzread(stream_->file, buffer_.data() + old,
                         static_cast<unsigned>(buffer_.size() - old));
  buffer_.resize(old + static_cast<size_t>(std::max(got, 0)));
  int code = Z_OK;
  const char* message = gzerror(stream_->file, &code);
  if (code == Z_ERRNO) return FileError(errno, stream_->path, "read");
  if (got < 0 || code == Z_BUF_ERROR) {
    return absl::DataLossError(absl::StrCat(
        stream_->path, ": damaged or cut short after ",
        consumed_ + static_cast<int64_t>(buffer_.size()),
        " bytes of text (zlib: ", message, "); get the file again"));
  }
  ended_ = got == 0;
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextReader::Next() {
  while (!ended_ && buffer_.size() < kPiece + 4) {
    DELINK_RETURN_IF_ERROR(Fill());
  }
  const Utf8Scan scan = ScanUtf8(buffer_);
  if (scan.valid < buffer_.size() && (!scan.incomplete || ended_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        stream_->path, ": byte ", consumed_ + static_cast<int64_t>(scan.valid),
        " (0x",
        absl::Hex(static_cast<unsigned char>(buffer_[scan.valid]),
                  absl::kZeroPad2),
        ") is not UTF-8; convert the file, for instance with iconv -f latin1 "
        "-t utf-8, or leave it out"));
  }
  std::string piece =
      buffer_.substr(0, ended_ && buffer_.size() <= kPiece ? buffer_.size()
                                                           : PieceEnd(buffer_));
  buffer_.erase(0, piece.size());
  consumed_ += static_cast<int64_t>(piece.size());
  return piece;
}

absl::StatusOr<int64_t> CountTextBytes(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(TextReader reader, TextReader::Open(path));
  int64_t bytes = 0;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(const std::string piece, reader.Next());
    if (piece.empty()) return bytes;
    bytes += static_cast<int64_t>(piece.size());
  }
}

}  // namespace delink
