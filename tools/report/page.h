// The page of a report: the data, with the files in tools/report/page/ and the
// plotting library, which are embedded at build time (embed.cmake).
#pragma once

#include <string>
#include <string_view>

namespace delink::report {

// The embedded files. The library is empty if the build found none.
std::string_view PageHtml();
std::string_view PageStyle();
std::string_view PageScript();
std::string_view PlotLibrary();
std::string_view PlotLicense();  // must accompany the library

// The whole page. `data` is JSON; nothing in it can end the element that holds
// it.
std::string MakePage(std::string_view data);

}  // namespace delink::report
