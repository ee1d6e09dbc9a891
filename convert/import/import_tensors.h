// The tensors of an import: from a family's links to those of a Megatron checkpoint, with recipes.
//
// Names and shapes are those of today's Megatron-LM: layers are stacked ("decoder.layers.<suffix>",
// layer axis first) where all are alike, and one tensor a layer where some have experts and some
// have not; experts are stacked on an axis after that. Prediction layers are never stacked.
//
// Source: Megatron-LM core/transformer/transformer_block.py sharded_state_dict, moe/experts.py,
// multi_token_prediction.py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ckpt/core/placed.h"
#include "ckpt/core/plan.h"
#include "convert/model/family.h"
#include "convert/model/hugging_face_tensors.h"

namespace ferry {

struct ImportTensorOptions {
  std::optional<DType> dtype;  // of floating-point tensors; those kept in fp32 by design stay
  bool drop_unknown = false;   // leave out what the family does not have; else it is refused
  bool any_dtype = false;      // layers of one tensor may differ in dtype
  /// Optimizer state of this kind, in place of the model: a parameter may be without. Empty: no.
  std::string optimizer_kind;
};

struct ImportedTensors {
  std::vector<StateTensor> tensors;  // in the order of the network
  std::vector<Dropped> dropped;      // buffers, copies, constants
  DType dtype = DType::f32;          // that most elements have
  std::vector<std::string> warnings;
};

/// `model` is of `catalog`. mismatch, naming all of them, when tensors are missing, left over or of
/// another shape than the family's, when layers of one tensor differ in dtype, or when some of them
/// have optimizer state and others have none; unsupported when a constant of the family has another
/// value in the file.
ImportedTensors import_tensors(const Catalog& catalog, HuggingFaceTensors& model,
                               const Family& family, const Architecture& architecture,
                               const ImportTensorOptions& options, const std::string& path);

}  // namespace ferry
