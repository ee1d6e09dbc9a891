// Keywords of save() and AsyncSaver, and formats.
#include <nanobind/stl/map.h>

#include <map>
#include <utility>

#include "ckpt/base/error.h"
#include "ckpt/memory/load.h"
#include "python/bindings/bindings.h"
#include "python/bindings/group.h"
#include "python/bindings/keywords.h"
#include "python/bindings/running.h"
#include "python/bindings/saving.h"
#include "python/bindings/text.h"

namespace ferry::python {
namespace {

namespace nb = nanobind;

Keywords<SaveSettings> save_keywords() {
  Keywords<SaveSettings> keywords;
#define MEMBER(path) FERRY_MEMBER(SaveSettings, path)
  keywords.add(MEMBER(options.begin.overwrite))
      .add_words(MEMBER(options.begin.tracker),
                 Words<TrackerMove>{{"forward", TrackerMove::forward},
                                    {"always", TrackerMove::always},
                                    {"never", TrackerMove::never}})
      .add(MEMBER(keep))
      .add(MEMBER(keep_every))
      .add(MEMBER(options.integrity.manifest))
      .add(MEMBER(options.integrity.sha256))
      .add(MEMBER(options.files_per_rank))
      .add(MEMBER(options.engine.memory_bytes), "memory")
      .add_size(MEMBER(options.engine.threads))
      .add(MEMBER(staging_bytes), "staging")
      .add(MEMBER(most_in_flight));
#undef MEMBER
  return keywords;
}

void check_positive(const std::optional<int64_t>& number, std::string_view name) {
  if (!number || *number >= 1) return;
  fail(ErrorKind::invalid, "{} must be at least 1", option(name, std::to_string(*number)));
}

SaveSettings settings_of(const Keywords<SaveSettings>& keywords, nb::dict given) {
  SaveSettings settings;
  keywords.take_all(given, settings);
  check_positive(settings.keep, "keep");
  check_positive(settings.keep_every, "keep_every");
  check_positive(settings.options.files_per_rank, "files_per_rank");
  check_positive(settings.most_in_flight, "most_in_flight");
  settings.options.keep.keep_last = settings.keep;
  settings.options.keep.keep_every = settings.keep_every;
  return settings;
}

ShardedOptimizer optimizer_form(nb::handle word) {
  constexpr std::pair<const char*, ShardedOptimizer> kForms[] = {
      {"fully_reshardable", ShardedOptimizer::fully_reshardable},
      {"dp_reshardable", ShardedOptimizer::dp_reshardable},
      {"plain", ShardedOptimizer::plain},
      {"none", ShardedOptimizer::none}};
  std::vector<const char*> words;
  for (const auto& form : kForms) words.push_back(form.first);
  return kForms[choose({"optimizer", word}, words)].second;
}

/// Formats that need the checkpoint which the run began with.
SaveFormat format_like(nb::handle like, const PythonGroup& ranks, bool is_torch_dist,
                       nb::handle optimizer, nb::handle release, int files_per_rank) {
  const std::shared_ptr<Group> group = ranks.group();
  std::string path;
  take({"like", like}, path);
  TorchDistOptions options;
  if (!release.is_none()) take({"release", release}, options.release);
  options.optimizer = optimizer_form(optimizer);
  options.files_per_rank = files_per_rank;
  EngineOptions engine;
  SaveFormat format;
  run_interruptibly(
      nb::none(), engine,
      [&] {
        const Checkpoint checkpoint = open_together(posix_file_system(), path, *group);
        format.format =
            is_torch_dist ? torch_dist_format(checkpoint, options)
                          : legacy_format(checkpoint, options.optimizer != ShardedOptimizer::none);
        group->barrier();  // rank 0 holds what keeps the checkpoint there
      },
      abort_of(group));
  return format;
}

SaveFormat model_format(uint64_t max_shard_bytes, const std::map<std::string, nb::bytes>& files) {
  std::vector<std::pair<std::string, std::string>> small;
  for (const auto& [name, content] : files) {
    small.emplace_back(name, std::string(content.c_str(), content.size()));
  }
  return {safetensors_format(max_shard_bytes, std::move(small)), OutputKind::model_folder};
}

}  // namespace

int64_t iteration_of(nb::handle given) {
  int64_t iteration = 0;
  take({"iteration", given}, iteration);
  if (iteration < 0) fail(ErrorKind::invalid, "iteration={}: the first is 0", iteration);
  return iteration;
}

void bind_save_options(nb::module_& module) {
  nb::class_<SaveSettings>(module, "_SaveSettings")
      .def_prop_ro("files_per_rank",
                   [](const SaveSettings& settings) { return settings.options.files_per_rank; });
  nb::class_<SaveFormat>(module, "_SaveFormat");
  const Keywords<SaveSettings> keywords = save_keywords();
  module.attr("_options")["save"] = keywords.names();
  module.attr("_defaults")["save"] = keywords.defaults();
  module.def(
      "_save_settings", [keywords](nb::dict given) { return settings_of(keywords, given); },
      nb::arg("given"),
      nb::sig("def _save_settings(given: dict[str, typing.Any]) -> _SaveSettings"));
  module.def(
      "_bytes",
      [](const std::string& name, nb::handle size) {
        uint64_t bytes = 0;
        take({name, size}, bytes);
        return bytes;
      },
      nb::arg("name"), nb::arg("size").none());
  module.def(
      "_path",
      [](const std::string& name, nb::handle path) {
        std::string text;
        take({name, path}, text);
        return text;
      },
      nb::arg("name"), nb::arg("path").none());
  module.def("_dcp_format", [] { return SaveFormat{dcp_format()}; });
  module.def("_safetensors_format", model_format, nb::arg("max_shard_bytes"), nb::arg("files"));
  module.def("_format_like", format_like, nb::arg("like").none(), nb::arg("ranks"),
             nb::arg("is_torch_dist"), nb::arg("optimizer").none(), nb::arg("release").none(),
             nb::arg("files_per_rank"));
}

}  // namespace ferry::python
