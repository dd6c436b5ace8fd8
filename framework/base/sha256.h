// SHA-256 digests, and the SHA256SUMS file that guards a folder.
//
// SHA256SUMS has the format of sha256sum(1), so that `sha256sum -c SHA256SUMS`
// works in the folder. Comment lines "# SIZE NAME", which that program skips,
// add the sizes, so that a truncated file is found without reading it. Names
// are relative to the folder. The file is written last and atomically: a folder
// without it is not complete.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

inline constexpr char kSumsName[] = "SHA256SUMS";

// A digest taken piece by piece. Move-only.
class Sha256 {
 public:
  Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  ~Sha256();

  void Update(const void* data, size_t size);
  void Update(std::string_view bytes) { Update(bytes.data(), bytes.size()); }

  // 64 lower-case hexadecimal digits; do not use the object after this.
  std::string Hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string Sha256Hex(std::string_view bytes);
absl::StatusOr<std::string> Sha256File(const std::string& path);

// One file of a SHA256SUMS.
struct FileSum {
  std::string name;    // relative to the folder
  std::string digest;  // hexadecimal
  int64_t bytes = -1;  // -1: unknown
};

// Reads a file and digests it.
absl::StatusOr<FileSum> SumFile(const std::string& dir,
                                const std::string& name);

// Reads the named files and writes dir/SHA256SUMS for them, in the given order.
absl::Status WriteSums(const std::string& dir,
                       const std::vector<std::string>& names);
// The same from sums already taken (each rank sums what it wrote).
absl::Status WriteSums(const std::string& dir,
                       const std::vector<FileSum>& sums);

// The entries of dir/SHA256SUMS, a regular file of at most 64 MiB.
absl::StatusOr<std::vector<FileSum>> ReadSums(const std::string& dir);

// Compares the files in `dir` and its subfolders with the entries by name and
// size, without reading files of the right size. The error names a file that is
// missing, truncated, too long, extra, or a link or device.
absl::Status VerifyListing(const std::string& dir,
                           const std::vector<FileSum>& sums);

// Reads one file and compares it with its entry. If the digests are nearly the
// same, the entry itself is damaged, and the error says so.
absl::Status VerifySum(const std::string& dir, const FileSum& sum);

// Everything: the listing, then the digest of every file. The error names the
// first bad file and what is wrong with it.
absl::Status VerifySums(const std::string& dir);

// The listing, then the digests of share `index` of `count`. The shares have
// about equal bytes, and together they are all files.
absl::Status VerifySums(const std::string& dir, int index, int count);

}  // namespace delink
