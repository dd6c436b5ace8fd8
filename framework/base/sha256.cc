#include "framework/base/sha256.h"

#include <openssl/evp.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

constexpr int64_t kBlock = 1 << 20;
constexpr size_t kHexDigits = 64;
// The largest SHA256SUMS: more than any folder of a run needs.
constexpr int64_t kLongestList = 64 << 20;

absl::Status Damaged(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(
      path, ": ", what, "; restore the file from a copy or make it again"));
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

// Whether most digits of two digests are the same: then they are digests of the
// same bytes, and one was damaged later. Digests of different bytes have about
// four of 64 digits in common.
bool MostDigitsEqual(const std::string& a, const std::string& b) {
  size_t same = 0;
  for (size_t i = 0; i < kHexDigits; ++i) {
    same += static_cast<size_t>(a[i] == b[i]);
  }
  return same > kHexDigits / 2;
}

// The files below `dir`, by their names relative to it.
absl::StatusOr<std::set<std::string>> FilesBelow(const std::string& dir) {
  namespace fs = std::filesystem;
  std::set<std::string> names;
  std::error_code error;
  fs::recursive_directory_iterator it(dir, error);
  for (; !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    const bool folder = fs::is_directory(it->symlink_status(error));
    if (!error && !folder) {
      names.insert(it->path().lexically_relative(dir).generic_string());
    }
  }
  if (error) return FileError(error.value(), dir, "list folder");
  return names;
}

}  // namespace

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  DELINK_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1);
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::Update(const void* data, size_t size) {
  DELINK_CHECK(EVP_DigestUpdate(state_->context, data, size) == 1);
}

std::string Sha256::Hex() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned int count = 0;
  DELINK_CHECK(EVP_DigestFinal_ex(state_->context, bytes, &count) == 1);
  std::string hex;
  for (unsigned int i = 0; i < count; ++i) {
    absl::StrAppend(&hex, absl::Hex(bytes[i], absl::kZeroPad2));
  }
  return hex;
}

std::string Sha256Hex(std::string_view bytes) {
  Sha256 digest;
  digest.Update(bytes);
  return digest.Hex();
}

absl::StatusOr<std::string> Sha256File(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::string buffer(kBlock, '\0');
  Sha256 digest;
  while (true) {
    DELINK_ASSIGN_OR_RETURN(const int64_t got,
                            file.Read(buffer.data(), kBlock));
    digest.Update(buffer.data(), static_cast<size_t>(got));
    if (got < kBlock) return digest.Hex();
  }
}

absl::StatusOr<FileSum> SumFile(const std::string& dir,
                                const std::string& name) {
  FileSum sum;
  sum.name = name;
  const std::string path = JoinPath(dir, name);
  DELINK_ASSIGN_OR_RETURN(sum.digest, Sha256File(path));
  DELINK_ASSIGN_OR_RETURN(sum.bytes, FileSize(path));
  return sum;
}

absl::Status WriteSums(const std::string& dir,
                       const std::vector<std::string>& names) {
  std::vector<FileSum> sums;
  for (const std::string& name : names) {
    DELINK_ASSIGN_OR_RETURN(FileSum sum, SumFile(dir, name));
    sums.push_back(std::move(sum));
  }
  return WriteSums(dir, sums);
}

absl::Status WriteSums(const std::string& dir,
                       const std::vector<FileSum>& sums) {
  std::string text;
  for (const FileSum& sum : sums) {
    // sha256sum escapes such names; this project writes none.
    DELINK_CHECK(sum.name.find_first_of("\n\r\\") == std::string::npos)
        << sum.name;
    if (sum.bytes >= 0)
      absl::StrAppend(&text, "# ", sum.bytes, " ", sum.name, "\n");
  }
  for (const FileSum& sum : sums) {
    absl::StrAppend(&text, sum.digest, "  ", sum.name, "\n");
  }
  return WriteFileAtomically(JoinPath(dir, kSumsName), text);
}

absl::StatusOr<std::vector<FileSum>> ReadSums(const std::string& dir) {
  const std::string path = JoinPath(dir, kSumsName);
  if (!PathExists(path)) {
    return absl::NotFoundError(absl::StrCat(
        path,
        ": missing: the folder is not whole (its writing was cut short), or "
        "Delink did not write it; make it again or choose another"));
  }
  DELINK_RETURN_IF_ERROR(CheckRegularFile(path));
  DELINK_ASSIGN_OR_RETURN(const int64_t length, FileSize(path));
  if (length > kLongestList) {
    return Damaged(path, absl::StrCat(length, " bytes long; the limit is ",
                                      kLongestList, " bytes"));
  }
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::vector<FileSum> sums;
  std::map<std::string, int64_t> sizes;
  int64_t line_number = 0;
  for (const absl::string_view piece : absl::StrSplit(text, '\n')) {
    ++line_number;
    const std::string line(piece);
    if (line.empty()) continue;
    if (line[0] == '#') {
      const size_t space = line.find(' ', 2);
      int64_t bytes = 0;
      if (space == std::string::npos || line[1] != ' ' ||
          !absl::SimpleAtoi(line.substr(2, space - 2), &bytes)) {
        return Damaged(
            path, absl::StrCat("line ", line_number, " is not '# SIZE NAME'"));
      }
      sizes[line.substr(space + 1)] = bytes;
      continue;
    }
    if (line.size() < kHexDigits + 3 || !IsHex(line.substr(0, kHexDigits)) ||
        line[kHexDigits] != ' ' ||
        (line[kHexDigits + 1] != ' ' && line[kHexDigits + 1] != '*')) {
      return Damaged(
          path, absl::StrCat("line ", line_number, " is not 'DIGEST  NAME'"));
    }
    sums.push_back({.name = line.substr(kHexDigits + 2),
                    .digest = line.substr(0, kHexDigits)});
  }
  if (!sizes.empty() && sizes.size() != sums.size()) {
    return Damaged(path, "it does not give a size for each digest");
  }
  for (FileSum& sum : sums) {
    const auto it = sizes.find(sum.name);
    if (it != sizes.end()) sum.bytes = it->second;
    if (it == sizes.end() && !sizes.empty()) {
      return Damaged(path, absl::StrCat("it gives no size for ", sum.name));
    }
  }
  if (sums.empty()) return Damaged(path, "it lists no file");
  return sums;
}

absl::Status VerifyListing(const std::string& dir,
                           const std::vector<FileSum>& sums) {
  DELINK_ASSIGN_OR_RETURN(std::set<std::string> found, FilesBelow(dir));
  found.erase(kSumsName);
  for (const FileSum& sum : sums) {
    const std::string path = JoinPath(dir, sum.name);
    if (found.erase(sum.name) == 0) {
      return Damaged(path, "missing, but listed in SHA256SUMS");
    }
    DELINK_RETURN_IF_ERROR(CheckRegularFile(path));
    if (sum.bytes < 0) continue;
    DELINK_ASSIGN_OR_RETURN(const int64_t bytes, FileSize(path));
    if (bytes == sum.bytes) continue;
    DELINK_ASSIGN_OR_RETURN(const std::string digest, Sha256File(path));
    if (MostDigitsEqual(digest, sum.digest)) {
      return Damaged(
          JoinPath(dir, kSumsName),
          absl::StrCat("damaged: it lists ", sum.bytes, " bytes for ", sum.name,
                       ", but the file has ", bytes,
                       " bytes and the listed digest"));
    }
    return Damaged(
        path, absl::StrCat(bytes < sum.bytes ? "truncated to " : "too long: ",
                           bytes, " bytes instead of ", sum.bytes));
  }
  if (!found.empty()) {
    return absl::DataLossError(
        absl::StrCat(JoinPath(dir, *found.begin()),
                     ": extra: not listed in SHA256SUMS; remove it"));
  }
  return absl::OkStatus();
}

absl::Status VerifySum(const std::string& dir, const FileSum& sum) {
  const std::string path = JoinPath(dir, sum.name);
  if (!PathExists(path)) {
    return Damaged(path, "missing, but listed in SHA256SUMS");
  }
  DELINK_ASSIGN_OR_RETURN(const std::string digest, Sha256File(path));
  if (digest == sum.digest) return absl::OkStatus();
  if (MostDigitsEqual(digest, sum.digest)) {
    return Damaged(
        JoinPath(dir, kSumsName),
        absl::StrCat("damaged: its digest of ", sum.name,
                     " differs from the file's digest in a few digits only, so "
                     "the digest is damaged, not the file"));
  }
  return Damaged(
      path, absl::StrCat("damaged: its SHA-256 is ", digest.substr(0, 12),
                         "... instead of ", sum.digest.substr(0, 12), "..."));
}

absl::Status VerifySums(const std::string& dir) {
  return VerifySums(dir, 0, 1);
}

absl::Status VerifySums(const std::string& dir, int index, int count) {
  DELINK_CHECK(0 <= index && index < count) << index << " of " << count;
  DELINK_ASSIGN_OR_RETURN(std::vector<FileSum> sums, ReadSums(dir));
  DELINK_RETURN_IF_ERROR(VerifyListing(dir, sums));
  // Largest first, each to the share that has least so far.
  std::stable_sort(
      sums.begin(), sums.end(),
      [](const FileSum& a, const FileSum& b) { return a.bytes > b.bytes; });
  std::vector<int64_t> load(static_cast<size_t>(count), 0);
  for (const FileSum& sum : sums) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += std::max<int64_t>(sum.bytes, 0) + 1;
    if (least - load.begin() != index) continue;
    DELINK_RETURN_IF_ERROR(VerifySum(dir, sum));
  }
  return absl::OkStatus();
}

}  // namespace delink
