// The one file that includes PCRE2.
#include "data/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/utf8.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

// Long runs of one kind of character need a large stack. The system allocates
// its memory when it is first used.
constexpr size_t kSmallestStack = size_t{32} << 10;
constexpr size_t kLargestStack = size_t{8} << 20;

absl::Status NotUnderstood(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("the pattern has ", std::string(what)));
}

std::string ErrorText(int code) {
  unsigned char text[256] = {};
  ::pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR Bytes(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.data());
}

bool IsCategory(std::string_view name) {
  constexpr std::string_view kCategories =
      " C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No "
      "P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs ";
  const std::string word = absl::StrCat(" ", std::string(name), " ");
  return name.find(' ') == std::string_view::npos &&
         kCategories.find(word) != std::string_view::npos;
}

bool IsScript(std::string_view name) {
  for (const char c : name) {
    if (!absl::ascii_isalpha(static_cast<unsigned char>(c)) && c != '_') {
      return false;
    }
  }
  const std::string pattern = absl::StrCat("\\p{sc:", std::string(name), "}");
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = ::pcre2_compile(Bytes(pattern), pattern.size(),
                                           PCRE2_UTF, &error, &at, nullptr);
  ::pcre2_code_free(code);
  return code != nullptr;
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
      } else if (c == ')') {
        if (caseless_.size() > 1) caseless_.pop_back();
        Copy(1);
      } else if (c == '{') {
        DELINK_RETURN_IF_ERROR(Interval());
      } else {
        DELINK_RETURN_IF_ERROR(Literal());
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

  // If case is ignored, Oniguruma lets one letter match several, such as ß and
  // ss: in a set with the one, and in text with the others. So within (?i:...)
  // only ASCII is allowed, and nothing after a letter that begins such text.
  absl::Status Literal() {
    const char c = rest_.front();
    if (caseless_.back()) {
      if (!absl::ascii_isascii(static_cast<unsigned char>(c))) {
        return NotUnderstood("characters beyond ASCII within (?i:...)");
      }
      const std::string_view next = rest_.substr(1, 1);
      if (std::string_view("sSfF").find(c) != std::string_view::npos &&
          next != "|" && next != ")") {
        return NotUnderstood(absl::StrCat(
            std::string(rest_.substr(0, 2)),
            " within (?i:...), where one letter may stand for several"));
      }
    }
    Copy(1);
    return absl::OkStatus();
  }

  // In Oniguruma \s is Unicode's property White_Space, without U+180E; letters
  // such as \h and \w mean other sets than in PCRE2.
  absl::Status Escape() {
    if (rest_.size() < 2) return NotUnderstood("\\ as its last character");
    const char c = rest_[1];
    if (caseless_.back() &&
        std::string_view("pPSDux").find(c) != std::string_view::npos) {
      return NotUnderstood(
          absl::StrCat("\\", std::string(1, c), " within (?i:...)"));
    }
    if (c == 's') {
      Replace(2, "\\p{White_Space}");
    } else if (c == 'S') {
      Replace(2, "\\P{White_Space}");
    } else if (c == 'p' || c == 'P') {
      return Property();
    } else if (c == 'x') {
      return Hex();
    } else if (c == 'u') {
      if (rest_.size() < 6) return NotUnderstood("\\u without four digits");
      const std::string digits(rest_.substr(2, 4));
      Replace(6, absl::StrCat("\\x{", digits, "}"));
    } else if (std::string_view("ndDrtf").find(c) != std::string_view::npos ||
               !absl::ascii_isalnum(static_cast<unsigned char>(c))) {
      Copy(2);
    } else {
      return NotUnderstood(absl::StrCat("\\", std::string(1, c)));
    }
    return absl::OkStatus();
  }

  // Categories are the same in both. In PCRE2 a script's bare name includes its
  // extensions. Both know other properties, but not the same ones.
  absl::Status Property() {
    const size_t end = rest_.find('}');
    const std::string letter(rest_.substr(1, 1));
    if (rest_.substr(2, 1) != "{" || end == std::string_view::npos) {
      return NotUnderstood(
          absl::StrCat("\\", letter, " without a name in braces"));
    }
    std::string_view name = rest_.substr(3, end - 3);
    const bool inverted = name.substr(0, 1) == "^";
    if (inverted) name.remove_prefix(1);
    if (!IsCategory(name) && !IsScript(name)) {
      return NotUnderstood(std::string(rest_.substr(0, end + 1)));
    }
    Replace(end + 1, absl::StrCat("\\", (letter == "P") != inverted ? "P" : "p",
                                  IsCategory(name) ? "{" : "{sc:",
                                  std::string(name), "}"));
    return absl::OkStatus();
  }

  // Without braces the digits are a byte in Oniguruma.
  absl::Status Hex() {
    const size_t end = Begins("\\x{") ? rest_.find('}') : 3;
    if (end >= rest_.size()) return NotUnderstood("\\x without its digits");
    if (end == 3 &&
        (rest_[2] < '0' || rest_[2] > '7' ||
         !absl::ascii_isxdigit(static_cast<unsigned char>(rest_[3])))) {
      return NotUnderstood(absl::StrCat(std::string(rest_.substr(0, 4)),
                                        ", which is not ASCII"));
    }
    Copy(end + 1);
    return absl::OkStatus();
  }

  // Only Oniguruma has sets within sets and &&.
  absl::Status Class() {
    Copy(Begins("[^") ? 2 : 1);
    if (Begins("]")) return NotUnderstood("] as the first of [...]");
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() == '[') return NotUnderstood("[ within [...]");
      if (Begins("&&")) return NotUnderstood("&& within [...]");
      if (rest_.front() == '\\') {
        DELINK_RETURN_IF_ERROR(Escape());
      } else if (caseless_.back() &&
                 !absl::ascii_isascii(
                     static_cast<unsigned char>(rest_.front()))) {
        return Literal();  // gives the error
      } else {
        Copy(1);
      }
    }
    if (rest_.empty()) return NotUnderstood("[ without ]");
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (Begins("(*")) return NotUnderstood("(*");
    caseless_.push_back(caseless_.back() || Begins("(?i:"));
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

  // {,n}, the + of {m,n}+ and the ? of {n}? mean something else in PCRE2.
  absl::Status Interval() {
    const size_t end = rest_.find('}');
    const std::string_view after =
        end == std::string_view::npos ? "" : rest_.substr(end + 1, 1);
    const bool quantifies = rest_.find_first_not_of("0123456789,", 1) == end;
    if (!quantifies && end != std::string_view::npos) return Literal();
    if (Begins("{,") || end == std::string_view::npos || after == "+" ||
        (after == "?" && rest_.find(',') > end)) {
      return NotUnderstood(std::string(
          rest_.substr(0, end == std::string_view::npos ? end : end + 2)));
    }
    Copy(end + 1);
    return absl::OkStatus();
  }

  std::string_view rest_;
  std::vector<bool> caseless_ = {false};  // of the groups around
  std::string out_;
};

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
  // If this fails, the pattern is interpreted.
  ::pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return SplitPattern(std::move(code));
}

absl::StatusOr<SplitPattern> SplitPattern::Compile(std::string_view pattern) {
  DELINK_ASSIGN_OR_RETURN(const std::string ours, PatternForPcre2(pattern));
  // In Ruby ^ and $ match at the beginning and end of each line.
  return Make(ours, PCRE2_UCP | PCRE2_MULTILINE);
}

absl::StatusOr<SplitPattern> SplitPattern::CompileLiteral(
    std::string_view text) {
  return Make(std::string(text), PCRE2_LITERAL);
}

absl::StatusOr<std::optional<SplitPattern::Range>> SplitPattern::Find(
    std::string_view text, size_t from, Matcher& matcher) const {
  const size_t begin = from;
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
    if (at[1] > begin) return Range{.begin = at[0], .end = at[1]};
    ++from;
    while (from < text.size() && CharacterBoundary(text, from) != from) ++from;
  }
  return std::nullopt;
}

absl::StatusOr<std::string> PatternForPcre2(std::string_view pattern) {
  return Rewriter(pattern).Run();
}

}  // namespace delink
