// The one table of Megatron-LM's arguments, and of our own few: name, kind, default, and what they
// mean here.
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
  no_effect,    // chooses between Megatron-LM's own kernels or ways to launch: accepted
  unsupported,  // refused with another value than its default
  removed,      // of older releases: refused, and no part of a checkpoint's arguments
  derived,      // no flag: follows from others
  saved,        // no flag: joins them when a checkpoint is saved
  fork,         // used; of another tree or our own: shown and saved where it is not the default
};

using ArgumentMember =
    std::variant<std::monostate, bool TrainArguments::*, int64_t TrainArguments::*,
                 double TrainArguments::*, std::string TrainArguments::*,
                 std::optional<int64_t> TrainArguments::*, std::optional<double> TrainArguments::*,
                 std::vector<int64_t> TrainArguments::*, std::vector<double> TrainArguments::*,
                 std::vector<std::string> TrainArguments::*, LayerPattern TrainArguments::*>;

struct ArgumentRow {
  std::string_view flags;  // "--save-interval --persistent-save-interval"; the first is shown
  ArgumentKind kind = ArgumentKind::flag;
  std::string_view initial;  // the default, as Python shows it
  ArgumentMember member = {};
  std::string_view choices = "";  // words apart, or a range of whole numbers; empty: any value
  std::string_view argument_name = "";  // where it is not the first flag's
  ArgumentStatus status = ArgumentStatus::used;

  /// The attribute of Megatron-LM's args: "save_interval".
  std::string name() const;
  std::string_view flag() const { return flags.substr(0, flags.find(' ')); }
  /// "AttnBackend." of a default that is a member of an enum; empty otherwise.
  std::string_view enum_prefix() const;
  /// The default as a command line would give it: "auto" of "AttnBackend.auto", "fp32" of
  /// "torch.float32".
  std::string_view initial_word() const {
    return kind == ArgumentKind::dtype ? dtype_word(initial) : initial.substr(enum_prefix().size());
  }
  bool is_bound() const { return member.index() != 0; }
};

/// All rows; no two share a flag.
const std::vector<ArgumentRow>& argument_rows();

/// Null when there is none. Rows of no flag are found by name alone.
const ArgumentRow* find_flag(std::string_view flag);
const ArgumentRow* find_argument(std::string_view name);

/// The flag that is most like `flag`; empty when none is near.
std::string nearest_flag(std::string_view flag);

/// The value that `arguments` has for a row: of the member, of `others`, or the default.
ArgumentValue value_of(const TrainArguments& arguments, const ArgumentRow& row);
bool is_default(const TrainArguments& arguments, const ArgumentRow& row);

/// Sets it: a member, or one of `others`. invalid for a value that is no choice of the row;
/// unsupported for one that means something in Megatron-LM and is not to be had here.
void set_value(TrainArguments& arguments, const ArgumentRow& row, ArgumentValue value);

// Parts of the table.
std::span<const ArgumentRow> model_rows();
std::span<const ArgumentRow> parallel_rows();
std::span<const ArgumentRow> training_rows();
std::span<const ArgumentRow> run_rows();        // checkpoints, logging, exit
std::span<const ArgumentRow> derived_rows();    // without a flag
std::span<const ArgumentRow> fork_rows();       // of other trees, and our own
std::span<const ArgumentRow> no_effect_rows();  // status no_effect, whatever the rows say
std::span<const ArgumentRow> unsupported_rows();
std::span<const ArgumentRow> unsupported_family_rows();  // other models, numbers and services
std::span<const ArgumentRow> removed_rows();

}  // namespace ferry
