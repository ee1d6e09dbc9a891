#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "ckpt/base/error.h"
#include "ckpt/checkpoint.h"
#include "ckpt/format/other_programs.h"
#include "ckpt/io/staging/staging.h"
#include "ckpt/store/run_folder.h"
#include "ops/output/foreign_entries.h"
#include "ops/output/paths.h"
#include "ops/output/write_output.h"

namespace ferry {
namespace {

constexpr size_t kForeignShown = 5;

// Finished or not, as an iteration of a run is.
bool holds_iteration(const FileSystem& file_system, const std::string& folder) {
  const std::optional<Format> format = format_of_folder(file_system, folder);
  if (format) return *format != Format::hugging_face && *format != Format::nemo;
  const std::vector<std::string> names = file_system.list(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return name.ends_with(".distcp"); });
}

// An iteration inside what is not a run folder would hide what is there, or be hidden by it.
void check_run_folder(const FileSystem& file_system, const std::string& folder) {
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::invalid, "the target {} {}; give the run folder to write the iteration into",
         folder, what);
  };
  const std::filesystem::path path = canonical(folder);
  const PathKind kind = file_system.status(folder).kind;
  if (iteration_of(path.filename().string()) ||
      (kind == PathKind::folder && holds_iteration(file_system, folder))) {
    refuse(fmt::format("is an iteration itself (of {})", path.parent_path().string()));
  }
  if (kind == PathKind::missing) return;
  if (kind != PathKind::folder) refuse("is a file");
  if (is_run_folder(file_system, folder)) return;
  const std::optional<Format> format = format_of_folder(file_system, folder);
  if (format == Format::hugging_face) refuse("holds a Hugging Face model");
  if (format == Format::nemo) refuse("is a NeMo checkpoint");
}

// A model may lie in the folder of the run that it was made of. In one of its iterations it would
// count as part of that, and go with it.
void check_outside_iterations(const std::string& target, const std::string& source) {
  std::filesystem::path folder = canonical(target).parent_path();
  for (; folder.has_relative_path() && is_same_or_inside(folder.string(), source);
       folder = folder.parent_path()) {
    if (!iteration_of(folder.filename().string())) continue;
    fail(ErrorKind::invalid,
         "the target {} is inside the source's iteration {}; choose one outside of it", target,
         folder.string());
  }
}

// Whether all that stands there may be replaced: overwriting removes the whole folder, with a
// README, a repository or results that somebody keeps there.
void check_replaceable(const FileSystem& file_system, const std::string& target, OutputKind kind) {
  const bool is_model = kind == OutputKind::model_folder;
  const std::string_view what = is_model ? "converted model" : "checkpoint";
  const bool is_replaceable = is_model
                                  ? format_of_folder(file_system, target) == Format::hugging_face
                                  : holds_iteration(file_system, target);
  if (!is_replaceable && !file_system.list(target).empty()) {
    fail(ErrorKind::invalid,
         "the target {} is not empty and holds no {}; {} replaces only such folders; remove it "
         "yourself or choose another",
         target, what, option("overwrite"));
  }
  std::vector<std::string> foreign = foreign_entries(
      file_system, target, is_model ? FolderContent::model : FolderContent::checkpoint);
  if (foreign.empty()) return;
  const size_t count = foreign.size();
  foreign.resize(std::min(count, kForeignShown));
  fail(ErrorKind::invalid,
       "the target {} holds besides the {}: {}{}; {} would remove that, too. Move it away, "
       "remove it, or choose another target",
       target, what, fmt::join(foreign, ", "),
       count > kForeignShown ? fmt::format(" and {} more", count - kForeignShown) : "",
       option("overwrite"));
}

}  // namespace

void check_output(const FileSystem& file_system, const Output& output, const std::string& source,
                  bool overwrite) {
  if (!what_url(output.path).empty()) {
    fail(ErrorKind::unsupported, "the target {} is a URL; write to a folder here, and copy that",
         output.path);
  }
  if (output.kind == OutputKind::iteration) check_run_folder(file_system, output.path);
  if (output.kind != OutputKind::model_folder && is_same_or_inside(output.path, source)) {
    fail(ErrorKind::invalid, "the target {} is inside the source {}; choose one outside of it",
         output.path, source);
  }
  if (output.kind == OutputKind::model_folder) check_outside_iterations(output.path, source);
  const bool new_run = file_system.status(output.path).kind == PathKind::missing;
  const std::string target = new_run ? output.path : output.folder();
  StagedFolder::check_target(file_system, target, overwrite);
  if (file_system.status(target).kind == PathKind::missing) return;
  if (is_same_or_inside(source, target)) {
    fail(ErrorKind::invalid, "the target {} holds the source {}: replacing it would destroy that",
         target, source);
  }
  check_replaceable(file_system, target, output.kind);
}

}  // namespace ferry
