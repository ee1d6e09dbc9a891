// The one table of Megatron-LM's arguments and our few own: name, type, default and status.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "trainer/arguments/argument_value.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry {

enum class ArgumentStatus : uint8_t {
  used,         // a member of TrainArguments
  no_effect,    // selects Megatron-LM's own kernels or launchers: accepted, ignored
  unsupported,  // rejected unless it has its default value
  removed,      // from older releases: rejected, not part of a checkpoint's arguments
  derived,      // no flag: computed from others
  saved,        // no flag: added when a checkpoint is saved
  fork,         // used; from another fork or our own: printed and saved unless it is the default
};

using ArgumentMember =
    std::variant<std::monostate, bool TrainArguments::*, std::optional<bool> TrainArguments::*,
                 int64_t TrainArguments::*, double TrainArguments::*, std::string TrainArguments::*,
                 std::optional<int64_t> TrainArguments::*, std::optional<double> TrainArguments::*,
                 std::vector<int64_t> TrainArguments::*, std::vector<double> TrainArguments::*,
                 std::vector<std::string> TrainArguments::*, LayerPattern TrainArguments::*>;

struct ArgumentRow {
  std::string_view flags;  // "--save-interval --persistent-save-interval"; the first is shown
  ArgumentKind kind = ArgumentKind::flag;
  std::string_view initial;  // the default, as Python shows it
  ArgumentMember member = {};
  std::string_view choices = "";        // words, or a range of integers; empty: any value
  std::string_view argument_name = "";  // if it differs from the first flag's
  ArgumentStatus status = ArgumentStatus::used;

  /// The attribute name in Megatron-LM's args: "save_interval".
  std::string name() const;
  std::string_view flag() const { return flags.substr(0, flags.find(' ')); }
  /// "AttnBackend." if the default is a member of that enum; empty otherwise.
  std::string_view enum_prefix() const;
  /// The default as written on a command line: "auto" of "AttnBackend.auto", "fp32" of
  /// "torch.float32".
  std::string_view initial_word() const {
    return kind == ArgumentKind::dtype ? dtype_word(initial) : initial.substr(enum_prefix().size());
  }
  bool is_bound() const { return member.index() != 0; }
};

/// All rows; no two share a flag.
const std::vector<ArgumentRow>& argument_rows();

/// Null if there is none. Rows without a flag are found by name only.
const ArgumentRow* find_flag(std::string_view flag);
const ArgumentRow* find_argument(std::string_view name);

/// The flag most similar to `flag`; empty if none is close.
std::string nearest_flag(std::string_view flag);

/// The value of a row in `arguments`: its member, its entry in `others`, or the default.
ArgumentValue value_of(const TrainArguments& arguments, const ArgumentRow& row);
bool is_default(const TrainArguments& arguments, const ArgumentRow& row);

/// Sets a member or an entry of `others`. invalid if the value is not one of the row's choices;
/// unsupported if Megatron-LM has it but this trainer does not.
void set_value(TrainArguments& arguments, const ArgumentRow& row, ArgumentValue value);

// Parts of the table.
std::span<const ArgumentRow> model_rows();
std::span<const ArgumentRow> parallel_rows();
std::span<const ArgumentRow> training_rows();
std::span<const ArgumentRow> run_rows();        // checkpoints, logging, exit
std::span<const ArgumentRow> derived_rows();    // without a flag
std::span<const ArgumentRow> fork_rows();       // from other forks, and our own
std::span<const ArgumentRow> no_effect_rows();  // status no_effect, whatever the rows say
std::span<const ArgumentRow> unsupported_rows();
std::span<const ArgumentRow> unsupported_family_rows();  // other models, numbers and services
std::span<const ArgumentRow> removed_rows();

}  // namespace ferry
