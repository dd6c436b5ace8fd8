// The one file that includes PCRE2.
#include "data/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Long runs of one kind of character need some; the system gives it when it is
// touched.
constexpr size_t kSmallestStack = size_t{32} << 10;
constexpr size_t kLargestStack = size_t{8} << 20;

absl::Status NotUnderstood(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the pattern has ", std::string(what)));
}

// Rewrites one pattern, front to back.
class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : rest_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\\') {
        DELINK_RETURN_IF_ERROR(Escape());
      } else if (c == '[') {
        DELINK_RETURN_IF_ERROR(Class());
      } else if (c == '(') {
        DELINK_RETURN_IF_ERROR(Group());
      } else if (c == '{') {
        DELINK_RETURN_IF_ERROR(Interval());
      } else {
        Copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  bool Begins(std::string_view text) const {
    return rest_.substr(0, text.size()) == text;
  }
  void Copy(size_t count) {
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(std::min(count, rest_.size()));
  }
  void Replace(size_t count, std::string_view with) {
    out_ += with;
    rest_.remove_prefix(count);
  }

  // White space is Unicode's property to Oniguruma, without U+180E; letters
  // such as \h and \w mean other sets to it.
  absl::Status Escape() {
    if (rest_.size() < 2) return NotUnderstood("\\ as its last character");
    const char c = rest_[1];
    if (c == 's') {
      Replace(2, "\\p{White_Space}");
    } else if (c == 'S') {
      Replace(2, "\\P{White_Space}");
    } else if (c == 'p' || c == 'P') {
      const size_t end = rest_.find('}');
      if (rest_.substr(2, 1) != "{" || end == std::string_view::npos) {
        return NotUnderstood(
            absl::StrCat("\\", std::string(1, c), " without a name in braces"));
      }
      Copy(end + 1);
    } else if (c == 'u') {
      if (rest_.size() < 6) return NotUnderstood("\\u without four digits");
      const std::string digits(rest_.substr(2, 4));
      Replace(6, absl::StrCat("\\x{", digits, "}"));
    } else if (std::string_view("ndDrtfx").find(c) != std::string_view::npos ||
               !absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      Copy(2);
    } else {
      return NotUnderstood(absl::StrCat("\\", std::string(1, c)));
    }
    return absl::OkStatus();
  }

  // Sets within sets and && are Oniguruma's alone.
  absl::Status Class() {
    Copy(Begins("[^") ? 2 : 1);
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() == '[') return NotUnderstood("[ within [...]");
      if (Begins("&&")) return NotUnderstood("&& within [...]");
      if (rest_.front() == '\\') {
        DELINK_RETURN_IF_ERROR(Escape());
      } else {
        Copy(1);
      }
    }
    if (rest_.empty()) return NotUnderstood("[ without ]");
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (!Begins("(?")) {
      Copy(1);
      return absl::OkStatus();
    }
    for (const std::string_view known :
         {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
      if (!Begins(known)) continue;
      Copy(known.size());
      return absl::OkStatus();
    }
    return NotUnderstood(std::string(rest_.substr(0, 4)));
  }

  // {,n} and the + of {m,n}+ mean something else to PCRE2.
  absl::Status Interval() {
    const size_t end = rest_.find('}');
    if (Begins("{,") || end == std::string_view::npos ||
        rest_.substr(end + 1, 1) == "+") {
      return NotUnderstood(std::string(
          rest_.substr(0, end == std::string_view::npos ? end : end + 2)));
    }
    Copy(end + 1);
    return absl::OkStatus();
  }

  std::string_view rest_;
  std::string out_;
};

std::string ErrorText(int code) {
  unsigned char text[256] = {};
  ::pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Bytes(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

}  // namespace

struct SplitPattern::Code {
  ~Code() { ::pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

struct SplitPattern::Matcher::State {
  ~State() {
    ::pcre2_match_data_free(data);
    ::pcre2_match_context_free(context);
    ::pcre2_jit_stack_free(stack);
  }
  pcre2_match_data* data = ::pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = ::pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack =
      ::pcre2_jit_stack_create(kSmallestStack, kLargestStack, nullptr);
};

SplitPattern::Matcher::Matcher() : state_(std::make_unique<State>()) {
  ::pcre2_jit_stack_assign(state_->context, nullptr, state_->stack);
}
SplitPattern::Matcher::Matcher(Matcher&&) noexcept = default;
SplitPattern::Matcher::~Matcher() = default;

SplitPattern::SplitPattern(std::unique_ptr<Code> code)
    : code_(std::move(code)) {}
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;
SplitPattern::~SplitPattern() = default;

absl::StatusOr<SplitPattern> SplitPattern::Make(const std::string& pattern,
                                                unsigned flags) {
  auto code = std::make_unique<Code>();
  int error = 0;
  size_t at = 0;
  code->code = ::pcre2_compile(Bytes(pattern), pattern.size(),
                               PCRE2_UTF | flags, &error, &at, nullptr);
  if (code->code == nullptr) {
    return NotUnderstood(absl::StrCat("an error: ", ErrorText(error)));
  }
  // Without machine code it is interpreted.
  ::pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return SplitPattern(std::move(code));
}

absl::StatusOr<SplitPattern> SplitPattern::Compile(std::string_view pattern) {
  DELINK_ASSIGN_OR_RETURN(const std::string ours, PatternForPcre2(pattern));
  // To Ruby ^ and $ are the ends of lines.
  return Make(ours, PCRE2_UCP | PCRE2_MULTILINE);
}

absl::StatusOr<SplitPattern> SplitPattern::CompileLiteral(
    std::string_view text) {
  return Make(std::string(text), PCRE2_LITERAL);
}

absl::StatusOr<std::optional<SplitPattern::Range>> SplitPattern::Find(
    std::string_view text, size_t from, Matcher& matcher) const {
  while (from < text.size()) {
    const int found = ::pcre2_match(code_->code, Bytes(text), text.size(), from,
                                    PCRE2_NO_UTF_CHECK, matcher.state_->data,
                                    matcher.state_->context);
    if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
    if (found < 0) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "the tokenizer's pattern fails on ", text.size(), " bytes of text: ",
          ErrorText(found), "; is there a line of megabytes without a space?"));
    }
    const size_t* const at = ::pcre2_get_ovector_pointer(matcher.state_->data);
    if (at[1] > at[0]) return Range{.begin = at[0], .end = at[1]};
    from = std::max(from, at[1]) + 1;
    while (from < text.size() && CharacterBoundary(text, from) != from) ++from;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern) {
  return Rewriter(pattern).Run();
}

}  // namespace delink
