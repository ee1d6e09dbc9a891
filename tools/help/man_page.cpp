#include "tools/help/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <sstream>

namespace ferry::tool {
namespace {

// roff's own signs as text, and no line that begins with one of its requests.
std::string roff(const std::string& text) {
  std::string result;
  bool is_first = true;
  for (const char c : text) {
    if (is_first && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
    is_first = c == '\n';
  }
  return result;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string heading_of(const OptionDescription& option) {
  return option.is_positional ? "Arguments" : option.heading;
}

void add_options(const CommandDescription& command, std::string& page) {
  std::vector<std::string> headings;
  for (const OptionDescription& option : command.options) {
    const std::string heading = heading_of(option);
    if (std::find(headings.begin(), headings.end(), heading) == headings.end()) {
      headings.push_back(heading);
    }
  }
  for (const std::string& heading : headings) {
    page += ".SH " + upper(roff(heading)) + "\n";
    for (const OptionDescription& option : command.options) {
      if (heading_of(option) != heading) continue;
      page += ".TP\n\\fB" + roff(fmt::format("{}", fmt::join(option.names, ", "))) + "\\fR";
      if (!option.value.empty() && !option.is_positional)
        page += " \\fI" + roff(option.value) + "\\fR";
      page += "\n" + (option.help.empty() ? "\\&" : roff(option.help));
      if (option.is_required && !option.is_positional) page += " (required)";
      page += "\n";
    }
  }
}

// As it stands; lines such as "Examples:" begin sections.
void add_footer(const std::string& footer, std::string& page) {
  std::istringstream lines(footer);
  bool has_section = false;
  for (std::string line; std::getline(lines, line);) {
    const bool is_heading = !line.empty() && line.front() != ' ' && line.back() == ':';
    if (is_heading) {
      page += ".SH " + upper(roff(line.substr(0, line.size() - 1))) + "\n.nf\n";
      has_section = true;
      continue;
    }
    if (!has_section) {
      if (line.empty()) continue;
      page += ".SH NOTES\n.nf\n";
      has_section = true;
    }
    page += line.empty() ? ".sp\n" : roff(line) + "\n";
  }
  if (has_section) page += ".fi\n";
}

}  // namespace

std::string man_page_name(const CommandDescription& command) {
  return fmt::format("{}", fmt::join(command.words, "-"));
}

std::string man_page(const CommandDescription& command, const std::string& version) {
  const std::string name = man_page_name(command);
  std::string page =
      fmt::format(".TH {} 1 \"\" \"ferry {}\" \"ferry\"\n", upper(roff(name)), version);
  page += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.help));
  page += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR\n", roff(command.usage));
  add_options(command, page);
  if (!command.commands.empty()) {
    page += ".SH COMMANDS\n";
    for (const CommandDescription& below : command.commands) {
      page += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(man_page_name(below)), roff(below.help));
    }
  }
  add_footer(command.footer, page);
  if (command.words.size() > 1) page += ".SH SEE ALSO\n\\fBferry\\fR(1)\n";
  return page;
}

}  // namespace ferry::tool
