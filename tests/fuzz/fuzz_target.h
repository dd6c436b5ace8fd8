// What a file of this folder gives: a reader, and bytes to begin with.
//
// A reader may refuse its input, with a message, but must not crash, hang, leak
// or make a sanitizer speak. fuzz_main.cc runs each target for two seconds on
// inputs made from the seeds by a generator with a fixed seed; the same entry
// point serves libFuzzer (docs/testing.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "framework/base/check.h"

namespace delink::fuzz {

// What libFuzzer calls; of C, so that it is the same in any namespace.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Good inputs, and words that mean something in them.
std::vector<std::string> Seeds();
std::vector<std::string> Words();

// The words of a list with '|' between them, and what such a list cannot have.
inline std::vector<std::string> WordsOf(const char* list,
                                        std::vector<std::string> more = {}) {
  const std::vector<std::string> words = absl::StrSplit(list, '|');
  more.insert(more.begin(), words.begin(), words.end());
  return more;
}

// Refusals must say why.
inline void MustSay(const absl::Status& status) {
  DELINK_CHECK(status.ok() || !status.message().empty());
}

}  // namespace delink::fuzz
