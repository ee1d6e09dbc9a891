// --part: which part of a work divided over processes is this one's.
#pragma once

#include <string>

#include "ckpt/group/mpi/launcher.h"
#include "tools/data/tokenize/text_inputs.h"

namespace ferry::tool {

/// "3/16": the fourth of 16 parts. "auto": from the variables of a Slurm array, srun or mpirun.
/// invalid for anything else, and for auto without such variables.
Part parse_part(const std::string& text, const Environment& environment);

/// PREFIX_00003-of-00016: so that parts sort by name. PREFIX alone where there is one part.
std::string prefix_of_part(const std::string& prefix, const Part& part);

}  // namespace ferry::tool
