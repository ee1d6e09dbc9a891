// Options of the libraries (ckpt/base/error.h) as the arguments of a run.
#pragma once

#include <string>
#include <string_view>

namespace ferry {

/// The message with those options as arguments that are some: "--ckpt-step 100". Others stay.
std::string in_arguments(std::string_view message);

}  // namespace ferry
