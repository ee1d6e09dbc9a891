// Man pages of ferry's commands, from what --help says.
#pragma once

#include <string>

#include "tools/help/description.h"

namespace ferry::tool {

/// A page of section 1 in roff, of the command alone: its commands have pages of their own.
std::string man_page(const CommandDescription& command, const std::string& version);

/// The page's name: "ferry-data-merge".
std::string man_page_name(const CommandDescription& command);

}  // namespace ferry::tool
