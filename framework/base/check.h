// Checks of what only a programmer can get wrong.
//
// DELINK_CHECK and its kin are always on. A failing check prints file, line,
// rank, the condition, both values and whatever was streamed, then aborts. What
// a user or the environment can get wrong is a Status, never a check.
//
//   DELINK_CHECK(stream != nullptr) << "no stream for " << name;
//   DELINK_CHECK_EQ(x.dim(1), w.dim(1));
#pragma once

#include <sstream>
#include <string>

namespace delink::base {

// Collects the message of one failing check; its destructor prints and aborts.
class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const std::string& what);
  [[noreturn]] ~CheckFailure();
  CheckFailure(const CheckFailure&) = delete;
  CheckFailure& operator=(const CheckFailure&) = delete;

  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Turns the stream expression into void, so that both arms of ?: agree.
struct Voidify {
  void operator&(std::ostream&) const {}
};

template <typename A, typename B>
std::string Values(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace delink::base

#define DELINK_CHECK(condition)                                          \
  (condition)                                                            \
      ? (void)0                                                          \
      : ::delink::base::Voidify() &                                      \
            ::delink::base::CheckFailure(__FILE__, __LINE__, #condition) \
                .stream()

// Operands are evaluated a second time only when the check fails.
#define DELINK_CHECK_OP_(a, op, b)                                      \
  ((a)op(b)) ? (void)0                                                  \
             : ::delink::base::Voidify() &                              \
                   ::delink::base::CheckFailure(                        \
                       __FILE__, __LINE__,                              \
                       ::delink::base::Values(#a " " #op " " #b, a, b)) \
                       .stream()

#define DELINK_CHECK_EQ(a, b) DELINK_CHECK_OP_(a, ==, b)
#define DELINK_CHECK_NE(a, b) DELINK_CHECK_OP_(a, !=, b)
#define DELINK_CHECK_LT(a, b) DELINK_CHECK_OP_(a, <, b)
#define DELINK_CHECK_LE(a, b) DELINK_CHECK_OP_(a, <=, b)
#define DELINK_CHECK_GT(a, b) DELINK_CHECK_OP_(a, >, b)
#define DELINK_CHECK_GE(a, b) DELINK_CHECK_OP_(a, >=, b)
