// Names of formats that people give to --to, and that it does not take: what writes them.
#pragma once

#include <map>
#include <string>

namespace ferry::tool {

/// By name in lower case: what comes after "'gguf' is none of ...: ".
const std::map<std::string, std::string>& other_formats();

}  // namespace ferry::tool
