#include "trainer/checkpoint/run_model.h"

#include <fmt/format.h>

#include <utility>

#include "ckpt/base/error.h"
#include "convert/arguments/arguments.h"

namespace ferry {
namespace {

Architecture checked_architecture(const Value& args, const std::string& path) {
  ReadArguments read = read_arguments(args, path);
  if (!read.problems.empty()) {
    fail(ErrorKind::unsupported, "{}: this model cannot be trained: {}", path,
         fmt::join(read.problems, "; "));
  }
  return std::move(read.architecture);
}

}  // namespace

RunModel::RunModel(const Value& args, std::vector<ModelTensor> tensors, const std::string& path)
    : RunModel{checked_architecture(args, path), std::move(tensors), read_run_arguments(args)} {}

RunModel::RunModel(Architecture described, std::vector<ModelTensor> tensors,
                   const RunArguments& run_arguments)
    : StateLayout{ModelLayout(std::move(tensors), run_arguments), {}},
      architecture(std::move(described)) {
  choice.modules = default_modules(layout.run());
  choice.separate_experts = layout.has_experts() && experts_are_separate(layout.run());
}

}  // namespace ferry
