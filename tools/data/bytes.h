// ferry data bytes: token files of any text, for which no tokenizer is needed.
#pragma once

#include "tools/terminal/command.h"

namespace ferry::tool {

void add_data_bytes(Command& data);

}  // namespace ferry::tool
