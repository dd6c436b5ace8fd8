// A SHA256SUMS, in a folder whose files are whole; one that names it finds a
// link to /dev/zero there.
#include <unistd.h>

#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_dir.h"

namespace delink::fuzz {
namespace {

// The folder of all inputs.
class Whole {
 public:
  Whole() {
    DELINK_CHECK(MakeDirectories(dir_ / "sub").ok());
    DELINK_CHECK(WriteFile(dir_ / "a", "alpha").ok());
    DELINK_CHECK(WriteFile(dir_ / "sub/b", "").ok());
  }
  const std::string& path() const { return dir_.path(); }

 private:
  testing::TempDir dir_;
};

const std::string& Folder() {
  static const Whole whole;
  return whole.path();
}

}  // namespace

std::vector<std::string> Seeds() {
  DELINK_CHECK(
      WriteSums(Folder(), std::vector<std::string>{"a", "sub/b"}).ok());
  const std::string whole = ReadFile(JoinPath(Folder(), kSumsName)).value();
  return {whole, whole.substr(whole.rfind('#')), "",
          Sha256Hex("") + "  zero\n" + whole};
}

std::vector<std::string> Words() {
  return WordsOf(
      "# |  | *|a\n|zero\n|sub/b\n|../|/etc/passwd\n|\n|\r\n|#|.|sub|",
      {Sha256Hex("alpha"), Sha256Hex("")});
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string& folder = Folder();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string zero = JoinPath(folder, "zero");
  unlink(zero.c_str());
  if (text.find("zero") != std::string_view::npos) {
    DELINK_CHECK(symlink("/dev/zero", zero.c_str()) == 0);
  }
  OutputFile file = OutputFile::Create(JoinPath(folder, kSumsName)).value();
  DELINK_CHECK(file.Write(text).ok() && file.Close().ok());
  const auto sums = ReadSums(folder);
  MustSay(sums.status());
  const absl::Status all = VerifySums(folder);
  MustSay(all);
  for (const int index : {0, 1, 2}) {
    const absl::Status share = VerifySums(folder, index, 3);
    MustSay(share);
    // What is whole is so in every share.
    DELINK_CHECK(share.ok() || !all.ok());
  }
  return 0;
}

}  // namespace delink::fuzz
