#include "tools/report/page.h"

#include <array>
#include <utility>

#include "framework/base/check.h"

namespace delink::report {
namespace {

// JSON has '<' only in strings, where this escape is the same character.
std::string Escaped(std::string_view json) {
  std::string text;
  text.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      text += "\\u003c";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string MakePage(std::string_view data) {
  const std::string escaped = Escaped(data);
  // In the order in which page.html has them.
  const std::array<std::pair<std::string_view, std::string_view>, 5> parts = {
      {{"{{style}}", PageStyle()},
       {"{{data}}", escaped},
       {"{{license}}", PlotLicense()},
       {"{{library}}", PlotLibrary()},
       {"{{script}}", PageScript()}}};
  std::string page;
  std::string_view rest = PageHtml();
  for (const auto& [mark, part] : parts) {
    const size_t at = rest.find(mark);
    DELINK_CHECK(at != std::string_view::npos)
        << "page.html lacks " << std::string(mark);
    page.append(rest.substr(0, at)).append(part);
    rest.remove_prefix(at + mark.size());
  }
  return page.append(rest);
}

}  // namespace delink::report
