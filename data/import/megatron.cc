// Megatron's pairs of files (its MMapIndexedDataset). The index has
// "MMIDIDX\0\0", version u64, type u8, number of sequences u64 and number of
// document bounds u64; then the lengths of the sequences i32, their first bytes
// i64, and the sequences at which documents begin, the end included, i64.
// Sequences must follow each other and fill the .bin, as Megatron writes them.
// With another index, such as a stale one, tokens would be lost.
#include "absl/strings/str_cat.h"
#include "data/import/layout.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr std::string_view kIndexMagic("MMIDIDX\0\0", 9);
constexpr int64_t kMegatronHeaderBytes = 9 + 8 + 1 + 8 + 8;

absl::StatusOr<TokenElement> TypeOf(const std::string& path, int64_t code) {
  switch (code) {
    case 1:
      return TokenElement::kU8;
    case 2:
      return TokenElement::kI8;
    case 3:
      return TokenElement::kI16;
    case 4:
      return TokenElement::kI32;
    case 5:
      return TokenElement::kI64;
    case 8:
      return TokenElement::kU16;
    case 6:
    case 7:
      return BadTokenFile(
          path, absl::StrCat("type ", code,
                             ": its data are floating-point numbers, not "
                             "tokens; give files of tokens"));
    default:
      break;
  }
  return BadTokenFile(path, absl::StrCat("type ", code,
                                         " is none of Megatron's; the index is "
                                         "damaged: write it again"));
}

class Index {
 public:
  Index(std::string path, std::string bytes)
      : path_(std::move(path)), bytes_(std::move(bytes)) {}

  absl::Status ReadHeader() {
    if (bytes_.substr(0, kIndexMagic.size()) != kIndexMagic) {
      return BadTokenFile(path_,
                          "wrong magic: not an index of Megatron's; give the "
                          ".idx that was written with the .bin");
    }
    if (static_cast<int64_t>(bytes_.size()) < kMegatronHeaderBytes) {
      return CutShort();
    }
    const int64_t version = NumberAt(TokenElement::kI64, bytes_, 9);
    if (version != 1) {
      return BadTokenFile(
          path_, absl::StrCat("version ", version, ", only 1 is known"));
    }
    DELINK_ASSIGN_OR_RETURN(
        type_, TypeOf(path_, NumberAt(TokenElement::kU8, bytes_, 17)));
    sequences_ = NumberAt(TokenElement::kI64, bytes_, 18);
    bounds_ = NumberAt(TokenElement::kI64, bytes_, 26);
    const int64_t room =
        static_cast<int64_t>(bytes_.size()) - kMegatronHeaderBytes;
    if (sequences_ < 0 || bounds_ < 0 || sequences_ > room / 12 ||
        bounds_ > (room - 12 * sequences_) / 8) {
      return CutShort();
    }
    if (12 * sequences_ + 8 * bounds_ != room) {
      return BadTokenFile(path_,
                          "is longer than its header says: it is damaged, or "
                          "of several modes, which are not supported");
    }
    return absl::OkStatus();
  }

  // The layout of `bin`, which has `size` bytes.
  absl::StatusOr<TokenLayout> Layout(const std::string& bin, int64_t size) {
    TokenLayout layout{.path = bin, .type = type_};
    DELINK_RETURN_IF_ERROR(CheckBounds());
    int64_t end = 0;
    int64_t bound = 0;
    bool begins = true;  // a document
    for (int64_t i = 0; i < sequences_; ++i) {
      while (bound < bounds_ && Bound(bound) <= i) {
        begins = true;
        ++bound;
      }
      const int64_t count = At(TokenElement::kI32, kMegatronHeaderBytes, i);
      const int64_t offset =
          At(TokenElement::kI64, kMegatronHeaderBytes + 4 * sequences_, i);
      if (offset != end || count < 0) {
        return BadTokenFile(
            path_,
            absl::StrCat("sequence ", i, " is ", count, " tokens at byte ",
                         offset, ", but those before end at byte ", end,
                         ": sequences must follow each other; write the pair "
                         "again with Megatron's tools"));
      }
      if (count > (size - offset) / ByteSize(type_)) {
        return NotOnePair(bin, size,
                          absl::StrCat("sequence ", i, " is ", count,
                                       " tokens at byte ", offset));
      }
      // All sequences of a document are one stretch.
      if (begins) layout.stretches.push_back({.offset = offset, .count = 0});
      layout.stretches.back().count += count;
      end = offset + count * ByteSize(type_);
      begins = false;
    }
    if (end == size) return layout;
    return NotOnePair(bin, size,
                      absl::StrCat("the last sequence ends at byte ", end));
  }

 private:
  absl::Status NotOnePair(const std::string& bin, int64_t size,
                          const std::string& what) const {
    return BadTokenFile(
        path_, absl::StrCat(what, ", but ", bin, " has ", size,
                            " bytes; the two are not a pair, or one is cut "
                            "short: fetch both again"));
  }
  int64_t At(TokenElement type, int64_t begin, int64_t i) const {
    return NumberAt(type, bytes_,
                    static_cast<size_t>(begin + i * ByteSize(type)));
  }
  int64_t Bound(int64_t i) const {
    return At(TokenElement::kI64, kMegatronHeaderBytes + 12 * sequences_, i);
  }

  absl::Status CheckBounds() const {
    for (int64_t i = 0; i < bounds_; ++i) {
      const int64_t least = i == 0 ? 0 : Bound(i - 1);
      if (least <= Bound(i) && Bound(i) <= sequences_) continue;
      return BadTokenFile(
          path_,
          absl::StrCat("document ", i, " begins at sequence ", Bound(i), " of ",
                       sequences_, "; the index is damaged: write it again"));
    }
    if (bounds_ > 0 && Bound(0) == 0 && Bound(bounds_ - 1) == sequences_) {
      return absl::OkStatus();
    }
    return BadTokenFile(
        path_, bounds_ == 0
                   ? std::string("has no documents; write it again")
                   : absl::StrCat("its documents span sequences ", Bound(0),
                                  " to ", Bound(bounds_ - 1), ", but it has ",
                                  sequences_, "; write it again"));
  }

  absl::Status CutShort() const {
    return BadTokenFile(path_, absl::StrCat("is cut short at ", bytes_.size(),
                                            " bytes; fetch it again"));
  }

  const std::string path_;
  const std::string bytes_;
  TokenElement type_ = TokenElement::kU16;
  int64_t sequences_ = 0;
  int64_t bounds_ = 0;
};

}  // namespace

absl::StatusOr<TokenLayout> ReadMegatronLayout(const std::string& path) {
  const std::string index_path = WithSuffix(path, ".idx");
  const std::string bin = WithSuffix(path, ".bin");
  for (const std::string& file : {index_path, bin}) {
    if (PathExists(file)) continue;
    return absl::NotFoundError(absl::StrCat(
        path, ": Megatron's tokens are in two files, and there is no ", file,
        "; put it there"));
  }
  DELINK_ASSIGN_OR_RETURN(std::string bytes, ReadFile(index_path));
  DELINK_ASSIGN_OR_RETURN(const int64_t size, FileSize(bin));
  Index index(index_path, std::move(bytes));
  DELINK_RETURN_IF_ERROR(index.ReadHeader());
  return index.Layout(bin, size);
}

}  // namespace delink
