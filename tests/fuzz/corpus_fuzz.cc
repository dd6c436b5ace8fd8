// A corpus: one bit flipped anywhere, which its digests must find; or a shard
// or the index as another program might have written it, with digests that fit.
#include <algorithm>

#include "data/corpus/build.h"
#include "data/corpus/corpus.h"
#include "data/corpus/format.h"
#include "data/tokenizer/tokenizer.h"
#include "tests/data/text_samples.h"
#include "tests/fuzz/edits.h"
#include "tests/fuzz/folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/testing/temp_dir.h"

namespace delink::fuzz {
namespace {

constexpr int64_t kMostRead = 4096;

const Folder& TinyCorpus() {
  static const testing::TempDir dir;
  static const Folder folder = [] {
    testing::WriteOrDie(dir / "a.txt", testing::SampleText(1, 1500));
    const auto report = BuildCorpus({.inputs = {dir / "a.txt"},
                                     .out = dir / "corpus",
                                     .threads = 1,
                                     .shard_tokens = 500});
    DELINK_CHECK(report.ok()) << report.status().ToString();
    return Folder(dir / "corpus/train");
  }();
  return folder;
}

// All that is ever done with a corpus.
absl::Status Use(const std::string& path) {
  const auto statistics = Corpus::Open(path, {.statistics_only = true});
  MustSay(statistics.status());
  const auto corpus = Corpus::Open(path);
  MustSay(corpus.status());
  if (!corpus.ok()) return corpus.status();
  const auto tokenizer = corpus->MakeTokenizer();
  MustSay(tokenizer.status());
  std::vector<int32_t> ids(
      static_cast<size_t>(std::min(corpus->tokens(), kMostRead)));
  const int64_t count = static_cast<int64_t>(ids.size());
  for (const int64_t begin : {int64_t{0}, corpus->tokens() - count}) {
    const absl::Status read = corpus->Read(begin, count, ids.data());
    MustSay(read);
    if (!read.ok()) return read;
    for (const int32_t id : ids) {
      DELINK_CHECK(0 <= id && id < corpus->vocab_size()) << id;
    }
  }
  std::vector<int64_t> starts(
      static_cast<size_t>(std::min(corpus->documents(), kMostRead)));
  const absl::Status read = corpus->ReadDocumentStarts(
      0, static_cast<int64_t>(starts.size()), starts.data());
  MustSay(read);
  return read;
}

}  // namespace

std::vector<std::string> Seeds() { return EditSeeds(); }
std::vector<std::string> Words() { return {}; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace format = corpus_format;
  static const Editable what = {
      .objects = {"/", format::kTokens, format::kDocuments, format::kTokenizer,
                  format::kShardTokens, "/else"},
      .attributes = {format::kKind, format::kFormat, format::kVocab,
                     format::kEndOfDocument, format::kTokenizerKind,
                     format::kTokenCount, format::kDocumentCount,
                     format::kByteCount, format::kEntropy, format::kDigest,
                     format::kMedianLength, format::kGreatestLength,
                     format::kFirstToken},
      .files = {format::ShardFile(0), format::ShardFile(1), format::kIndexFile,
                ".", "none.h5", "/etc/passwd", "../a.txt"}};
  const Folder& folder = TinyCorpus();
  ByteStream bytes({reinterpret_cast<const char*>(data), size});
  if (size > 0 && bytes.Below(4) == 0) {
    const std::string flipped = FlipOne(folder, bytes.Number());
    // Comments of SHA256SUMS may change and be none the worse.
    const absl::Status status = Use(folder.path());
    DELINK_CHECK(!status.ok() || flipped == kSumsName) << flipped;
    folder.Restore(flipped);
    return 0;
  }
  const std::string name =
      bytes.Below(2) == 0 ? format::kIndexFile : format::ShardFile(1);
  Edit(folder.File(name), what, bytes);
  folder.SumAgain();
  const absl::Status status = Use(folder.path());
  DELINK_CHECK(status.ok() || size > 0) << status.ToString();
  folder.Restore(name);
  return 0;
}

}  // namespace delink::fuzz
