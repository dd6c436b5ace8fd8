#include "tools/syntax/syntax.h"

#include "tools/syntax/argument_text.h"

namespace delink::tools {

ArgumentCheck WholeNumber(int64_t least, int64_t most) {
  return [=](const std::string& text) {
    return WholeNumberProblem(text, least, most);
  };
}

ArgumentCheck Number(double least, double most) {
  return
      [=](const std::string& text) { return NumberProblem(text, least, most); };
}

}  // namespace delink::tools
