// The subcommands: each adds itself to the parser with a callback that does its work.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/group/group.h"
#include "tools/terminal/command.h"

namespace ferry::tool {

/// The processes that carry a command out together; joined when it begins, as all of them do.
using Processes = std::function<std::shared_ptr<Group>()>;

void add_inspect(Command& program);
void add_convert(Command& program, const Processes& processes);
void add_reshard(Command& program, const Processes& processes);
void add_prune(Command& program);
void add_report(Command& program);
void add_launch(Command& program);
/// Sets `exit_code`, which must outlive the program, when a signal ended what has no other end.
void add_runs(Command& program, int& exit_code);
/// `arguments` are Megatron-LM's, given after --.
void add_estimate(Command& program, std::vector<std::string> arguments);
/// Sets `exit_code`, which must outlive the program, when damage was found.
void add_verify(Command& program, int& exit_code);
/// The same, when a problem was found.
void add_check(Command& program, int& exit_code);
void add_seal(Command& program);
/// The same, of token files.
void add_data(Command& program, int& exit_code);
/// The same, when tensors differ.
void add_diff(Command& program, int& exit_code);

}  // namespace ferry::tool
