// Text as HTML.
#pragma once

#include <string>
#include <string_view>

namespace ferry::tool {

/// `text` as it stands in an element or a quoted attribute: what a page could take for markup is
/// spelled out, and what must not be printed is made safe.
std::string html(std::string_view text);

/// Marks a page as ferry's; near its beginning.
inline constexpr std::string_view kPageMark = "<meta name=\"generator\" content=\"ferry\">";

/// What differs between pages, as HTML.
struct HtmlPage {
  std::string title, subtitle;
  std::string first;       // the id of the first section, for who skips the navigation
  std::string navigation;  // items of a list
  std::string main;
};

/// The whole page, with the rules that all pages share: colours of light and dark screens, tables,
/// maps, charts. It runs no scripts and fetches nothing.
std::string html_page(const HtmlPage& page);

/// An item of the navigation.
std::string link_to(std::string_view id, std::string_view name);

}  // namespace ferry::tool
