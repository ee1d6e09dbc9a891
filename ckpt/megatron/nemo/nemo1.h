// Models of NeMo 1: a .nemo archive, a tar of
//
//   model_config.yaml
//   model_weights.ckpt                     a file of torch.save, or
//   model_weights/                         a distributed checkpoint (torch_dist, zarr), or
//   mp_rank_00/model_weights.ckpt, ...     a file of each tensor or pipeline rank
//
// or the folder that it was extracted to.
//
// Source: nemo/core/connectors/save_restore_connector.py,
// nemo/collections/nlp/parts/nlp_overrides.py (NLPSaveRestoreConnector).
#pragma once

#include <memory>
#include <string>

#include "ckpt/checkpoint.h"
#include "ckpt/io/file_system.h"

namespace ferry {

/// True when `folder` holds model_config.yaml and weights.
bool is_nemo1_folder(const FileSystem& file_system, const std::string& folder);

/// Tensors under the names that the module had. unsupported for files of ranks, and as
/// open_torch_file() and open_dcp().
Checkpoint open_nemo1(std::shared_ptr<const FileSystem> file_system, const std::string& folder,
                      bool raw);

}  // namespace ferry
