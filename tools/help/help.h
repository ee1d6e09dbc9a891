// `ferry help`, `ferry version` and `ferry completion`: what --help says, in other forms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/help/description.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

/// Asked for when a command's line was parsed: all commands stand there by then.
struct HelpTexts {
  std::function<CommandDescription()> description;  // of the program
  std::string version;
};

/// `texts` must outlive the parser.
void add_help(Command& program, const HelpTexts& texts);

}  // namespace ferry::tool
