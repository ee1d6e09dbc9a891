// Text as HTML.
#pragma once

#include <string>
#include <string_view>

namespace ferry::tool {

/// `text` as it stands in an element or a quoted attribute: what a page could take for markup is
/// spelled out, and what must not be printed is made safe.
std::string html(std::string_view text);

/// The rules that all pages share: colours of light and dark screens, tables, maps.
extern const std::string_view kReportStyle;

}  // namespace ferry::tool
