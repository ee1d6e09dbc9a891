// Everything that ferry's libraries offer.
//
//   ops/convert.h   convert(): a model between Megatron-LM, Hugging Face and other formats
//   ops/reshard.h   reshard(): a training checkpoint at another layout or in another format
//   ops/verify.h    verify(), verify_run(), seal(): check for damage, write checksums
//   ops/diff.h      diff(): compare two checkpoints
//   ops/prune.h     prune(): delete old iterations of a run
//   ops/inspect.h   inspect(): what a checkpoint is and holds
//   ckpt/checkpoint.h     open_checkpoint(): the tensors of a checkpoint of any format;
//   read_tensor() ckpt/memory/    save(), AsyncSaver, load(): from and into the memory of your own
//   program
//
// Each operation takes a struct of options and returns a struct of results. It reports progress
// through a function of yours, stops soon after `cancel` is set, throws ferry::Error, and leaves
// its target as it was in both cases. Operations may run in several threads at once. None installs
// a signal handler, prints, or reads the command line or the environment.
#pragma once

#include "ckpt/checkpoint.h"          // IWYU pragma: export
#include "ckpt/memory/async_saver.h"  // IWYU pragma: export
#include "ckpt/memory/load.h"         // IWYU pragma: export
#include "ckpt/memory/save.h"         // IWYU pragma: export
#include "ops/convert.h"              // IWYU pragma: export
#include "ops/diff.h"                 // IWYU pragma: export
#include "ops/inspect.h"              // IWYU pragma: export
#include "ops/prune.h"                // IWYU pragma: export
#include "ops/reshard.h"              // IWYU pragma: export
#include "ops/verify.h"               // IWYU pragma: export
