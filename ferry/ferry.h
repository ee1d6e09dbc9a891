// The operations of ferry, and saving and loading for programs that hold tensors.
//
// - ops/convert.h: convert(), a model between Megatron-LM, Hugging Face and other formats;
//   view_as_hugging_face(), the same to be read instead of written
// - ops/reshard.h: reshard(), a training checkpoint at another layout or in another format
// - ops/verify.h: verify(), verify_run() and seal(), which check for damage and write checksums
// - ops/check.h: check(), whether a Hugging Face folder is whole and loads where it is to be used
// - ops/diff.h: diff(), which compares two checkpoints
// - ops/prune.h: prune(), which deletes old iterations of a run
// - ops/inspect.h: inspect(), what a checkpoint is and holds
// - ckpt/checkpoint.h: open_checkpoint(), the tensors of a checkpoint of any format
// - ckpt/engine/engine.h: read_tensor(), the elements of one of them
// - ckpt/memory/: save() and AsyncSaver from your program's memory; load() and TensorStream into it
// - ckpt/base/error.h: Error, and spell_options(), messages in your program's words for options
//
// Components of their own, with what they need: estimate/estimate.h (ferry::estimate),
// ckpt/group/mpi/mpi_group.h (ferry::mpi).
//
// Each operation takes its options as a struct, some after a path, and returns a struct of results.
// It reports progress through a function of yours, stops soon after `cancel` is set, throws
// ferry::Error (or std::bad_alloc), and leaves its target as it was in both cases. Operations may
// run in several threads at once. None installs a signal handler, prints, or reads the command
// line; of the environment only what names the folder for temporary files is read (TMPDIR and its
// like), for large zstd streams.
#pragma once

#include "ckpt/base/error.h"          // IWYU pragma: export
#include "ckpt/checkpoint.h"          // IWYU pragma: export
#include "ckpt/engine/engine.h"       // IWYU pragma: export
#include "ckpt/memory/async_saver.h"  // IWYU pragma: export
#include "ckpt/memory/load.h"         // IWYU pragma: export
#include "ckpt/memory/save.h"         // IWYU pragma: export
#include "ops/check.h"                // IWYU pragma: export
#include "ops/convert.h"              // IWYU pragma: export
#include "ops/diff.h"                 // IWYU pragma: export
#include "ops/inspect.h"              // IWYU pragma: export
#include "ops/prune.h"                // IWYU pragma: export
#include "ops/reshard.h"              // IWYU pragma: export
#include "ops/verify.h"               // IWYU pragma: export
