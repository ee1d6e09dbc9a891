// The subcommands of `ferry data`, each in a file of its name: each adds itself to the parser.
#pragma once

#include "tools/terminal/command.h"

namespace ferry::tool {

void add_inspect_data(Command& data);
/// Sets `exit_code`, which must outlive the program, when something is wrong.
void add_check_data(Command& data, int& exit_code);
void add_merge_data(Command& data);
void add_data_bytes(Command& data);
void add_data_tokenize(Command& data);
void add_mix_data(Command& data);
void add_config_data(Command& data);
void add_dumps_data(Command& data);
void add_show_data(Command& data);

}  // namespace ferry::tool
