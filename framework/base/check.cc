#include "framework/base/check.h"

#include <cstdio>
#include <cstdlib>

#include "framework/base/log.h"

namespace delink::base {

CheckFailure::CheckFailure(const char* file, int line,
                           const std::string& what) {
  stream_ << file << ":" << line << ": check failed: " << what << " ";
}

CheckFailure::~CheckFailure() {
  const std::string text = stream_.str();
  std::fprintf(stderr, "rank %d: %s\n", LogRank(), text.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace delink::base
