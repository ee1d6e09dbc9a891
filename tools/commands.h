// The subcommands: each adds itself to the parser with a callback that does its work.
#pragma once

#include <functional>
#include <memory>

#include "ckpt/group/group.h"

namespace CLI {
class App;
}

namespace ferry::tool {

/// The processes that carry a command out together; joined when it begins, as all of them do.
using Processes = std::function<std::shared_ptr<Group>()>;

void add_inspect(CLI::App& program);
void add_convert(CLI::App& program, const Processes& processes);
void add_reshard(CLI::App& program, const Processes& processes);
void add_prune(CLI::App& program);
void add_report(CLI::App& program);
/// Sets `exit_code`, which must outlive the program, when damage was found.
void add_verify(CLI::App& program, int& exit_code);
/// The same, when tensors differ.
void add_diff(CLI::App& program, int& exit_code);

}  // namespace ferry::tool
