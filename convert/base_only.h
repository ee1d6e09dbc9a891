// What becomes of an adapter inside a checkpoint (convert/adapters.h) where a model is written: the
// model alone is not what was trained, so only --base-only takes the two apart.
#pragma once

#include <string>

#include "ckpt/checkpoint.h"
#include "convert/adapters.h"

namespace ferry {

/// unsupported, with what can be done instead. `checkpoint` names the path and the program.
[[noreturn]] void refuse_adapter(const Checkpoint& checkpoint, const AdapterSummary& adapter);

/// Refuses a Hugging Face folder that is an adapter without its model, as PEFT saves it, naming the
/// model.
void refuse_adapter_folder(const Checkpoint& checkpoint);

/// Refuses a checkpoint with an adapter inside, or alone.
void check_no_adapter(const Checkpoint& checkpoint);

/// invalid: --base-only of a checkpoint without an adapter.
[[noreturn]] void refuse_base_only(const std::string& path);

/// Whether a file of a Hugging Face folder is an adapter's, in PEFT's names.
bool is_adapter_file(const std::string& name);

/// What to warn of where the adapter's tensors were left out.
std::string left_out_text(const AdapterSummary& adapter);

/// Removes the adapter's tensors, and what wraps the names of the others; mismatch where two would
/// have one name. Returns the adapter.
AdapterSummary take_adapter_out(Checkpoint& checkpoint);

/// Leaves the adapter out of `checkpoint` (no state dict), whose other tensors get their own names,
/// and returns the warning. Without `base_only` such a checkpoint is refused; but tensors that are
/// copied under their names for a class that is not known here (`keeps_names`), which may have an
/// adapter of its own, stay, and the warning says so. Empty: there is none.
std::string resolve_adapter(Checkpoint& checkpoint, bool base_only, bool keeps_names);

}  // namespace ferry
