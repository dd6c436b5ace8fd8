#include "tests/testing/source_path.h"

#include <string>

namespace delink::testing {

std::string SourcePath(const std::string& name) {
  return DELINK_SOURCE_DIR "/" + name;
}

}  // namespace delink::testing
