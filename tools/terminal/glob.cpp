#include "tools/terminal/glob.h"

#include <fnmatch.h>

#include <string>

namespace ferry::tool {

bool glob_matches(std::string_view pattern, std::string_view name) {
  return fnmatch(std::string(pattern).c_str(), std::string(name).c_str(), FNM_NOESCAPE) == 0;
}

}  // namespace ferry::tool
