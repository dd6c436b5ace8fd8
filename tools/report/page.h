// The page of a report: the files in tools/report/page/ and the plotting
// library, embedded when the program is built (embed.cmake), around the data.
#pragma once

#include <string>
#include <string_view>

namespace delink::report {

// As embedded; the library is empty where the build found none.
std::string_view PageHtml();
std::string_view PageStyle();
std::string_view PageScript();
std::string_view PlotLibrary();
std::string_view PlotLicense();  // of the library, which goes where it goes

// The whole page. `data` is JSON; nothing in it can end the element that it is
// written into.
std::string MakePage(std::string_view data);

}  // namespace delink::report
