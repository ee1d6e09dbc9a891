#include "tools/report/html.h"

#include "tools/terminal/text.h"

namespace ferry::tool {

std::string html(std::string_view text) {
  std::string result;
  for (char c : printable(text)) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\'':
        result += "&#39;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace ferry::tool
