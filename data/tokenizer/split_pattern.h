// A regular expression that cuts text into words, as a tokenizer.json has it.
//
// The `tokenizers` library matches with Oniguruma, in Ruby's syntax; we match
// with PCRE2, which compiles to machine code. If the two differ, the pattern is
// rewritten, or refused with an error that names the difference; every match is
// the same as Oniguruma's. Immutable and thread-safe; each thread needs its own
// Matcher.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace delink {

class SplitPattern {
 public:
  struct Range {
    size_t begin = 0, end = 0;
  };

  class Matcher {
   public:
    Matcher();
    Matcher(Matcher&&) noexcept;
    ~Matcher();

   private:
    friend class SplitPattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  // The error names what is not supported in `pattern`, but not the file that
  // the pattern is from.
  static absl::StatusOr<SplitPattern> Compile(std::string_view pattern);
  static absl::StatusOr<SplitPattern> CompileLiteral(std::string_view text);

  SplitPattern(SplitPattern&&) noexcept;
  SplitPattern& operator=(SplitPattern&&) noexcept;
  ~SplitPattern();

  // The first match at or after `from` in `text`, which is UTF-8. An empty one
  // at `from` itself cuts nothing off and is skipped. ResourceExhausted if
  // matching exceeds PCRE2's limits.
  absl::StatusOr<std::optional<Range>> Find(std::string_view text, size_t from,
                                            Matcher& matcher) const;

 private:
  struct Code;
  explicit SplitPattern(std::unique_ptr<Code> code);
  static absl::StatusOr<SplitPattern> Make(const std::string& pattern,
                                           unsigned flags);

  std::unique_ptr<Code> code_;
};

// `pattern` translated for PCRE2; the rules are in the source.
absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern);

}  // namespace delink
