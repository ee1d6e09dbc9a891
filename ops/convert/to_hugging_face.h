// A checkpoint's model under Hugging Face's names: planned here, to be written by convert() or read
// by a ModelView.
#pragma once

#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "convert/export.h"
#include "ops/convert.h"

namespace ferry {

/// A model, and files that go with it.
struct ModelPlan {
  PlannedOutput planned;
  std::string family;  // empty: unknown
  ParameterCount count;
  std::vector<ConstantTensor> constants;  // of the plan
};

/// `checkpoint` as open_source() opened it; what the options ask for changes it. Errors as
/// convert().
ModelPlan plan_hugging_face(Checkpoint& checkpoint, const ConvertOptions& options);

}  // namespace ferry
