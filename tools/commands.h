// The subcommands: each adds itself to the parser with a callback that does its work.
#pragma once

#include <memory>

#include "ckpt/group/group.h"

namespace CLI {
class App;
}

namespace ferry::tool {

void add_inspect(CLI::App& program);
/// `group`: the processes that carry the command out together.
void add_convert(CLI::App& program, std::shared_ptr<Group> group);
void add_reshard(CLI::App& program, std::shared_ptr<Group> group);
void add_verify(CLI::App& program);
void add_prune(CLI::App& program);
void add_report(CLI::App& program);
/// Sets `exit_code`, which must outlive the program, when tensors differ.
void add_diff(CLI::App& program, int& exit_code);

}  // namespace ferry::tool
