#include "nemo/nemo_checkpoints.h"

#include <fmt/format.h>

#include <algorithm>

#include "ckpt/base/error.h"
#include "ckpt/format/pickle/values/draft.h"
#include "ckpt/format/torch/objects.h"
#include "ckpt/group/group.h"
#include "ckpt/megatron/state_of.h"
#include "ckpt/memory/run_state_memory.h"
#include "nemo/checkpoint_names.h"
#include "trainer/arguments/namespace.h"

namespace ferry::mnist {
namespace {

constexpr const char* kDataModule = "MNISTDataModule";  // whose state has the consumed samples

// NeMo keeps the model in a Lightning module's attribute "module".
std::string name_in_module(const std::string& name) {
  constexpr std::string_view kState = ".state.";
  size_t at = 0;
  if (name.starts_with("optimizer.")) {
    at = name.find('.', name.find(kState) + kState.size()) + 1;
  }
  return name.substr(0, at) + "module." + name.substr(at);
}

template <typename Make>
LoadedValue drafted(const Make& make) {
  Draft draft;
  const Value root = make(draft);
  return std::move(draft).finish(root);
}

}  // namespace

NemoCheckpoints::NemoCheckpoints(const TrainArguments& arguments, const Config& config,
                                 const MetricTracker& tracker,
                                 std::shared_ptr<const FileSystem> files, Group& group,
                                 NemoCheckpointOptions options, Print print)
    : arguments_(arguments),
      config_(config),
      tracker_(tracker),
      files_(std::move(files)),
      group_(group),
      options_(std::move(options)),
      print_(std::move(print)) {}

// Checkpoints of an earlier process: values are read from names, where these have them.
void NemoCheckpoints::find_former() {
  if (std::exchange(knows_former_, true)) return;
  const std::string names = from_first_together(group_, [&] {
    make_folders(*files_, options_.folder);
    for (const std::string& name : remove_unfinished(*files_, options_.folder)) {
      print_(fmt::format("removed {}, which was unfinished\n", join(options_.folder, name)));
    }
    return fmt::format("{}", fmt::join(finished_checkpoints(*files_, options_.folder), "\n"));
  });
  for (size_t begin = 0; begin < names.size();) {
    const size_t end = std::min(names.find('\n', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    begin = end + 1;
    const auto value = value_in_name(name, options_.monitor);
    if (name.ends_with(kLast)) {
      lasts_.push_back(name);
    } else if (value) {
      best_.emplace_back(*value, name);
    }
  }
}

bool NemoCheckpoints::is_among_best(double value) const {
  if (best_.size() < options_.save_top_k) return true;
  return options_.save_top_k > 0 && value < std::ranges::max(best_).first;
}

void NemoCheckpoints::save(SaveKind, std::vector<ConstRegion> tensors, RunState state) {
  find_former();
  const int64_t consumed = read_consumed_samples(state.args.value).train.value_or(0);
  const int64_t epoch = std::max<int64_t>(consumed - 1, 0) / options_.samples_per_epoch;
  const double value = tracker_.last(options_.monitor);
  const std::string name = checkpoint_name(options_.run, options_.monitor, value, epoch, consumed);
  for (ConstRegion& region : tensors) region.name = name_in_module(region.name);
  const auto add = [&](const char* member, LoadedValue loaded) {
    state.common.emplace_back(member, std::move(loaded));
  };
  const int64_t step = state.iteration.value_or(0);
  add("epoch", drafted([&](Draft& draft) { return draft.integer(epoch); }));
  add("global_step", drafted([&](Draft& draft) { return draft.integer(step); }));
  add(kDataModule, drafted([&](Draft& draft) {
        const Value module = draft.dict();
        draft.put(module, "consumed_samples", draft.integer(consumed));
        return module;
      }));
  std::erase_if(best_, [&](const auto& one) { return one.second == name; });
  if (is_among_best(value)) {
    write(name, tensors, state);
    best_.emplace_back(value, name);
    while (best_.size() > options_.save_top_k) {
      const auto worst = std::ranges::max_element(best_);
      remove(worst->second);
      best_.erase(worst);
    }
  }
  if (!options_.save_last) return;
  const std::string last = name + std::string(kLast);
  write(last, tensors, state);
  for (const std::string& former : std::exchange(lasts_, {last})) {
    if (former != last) remove(former);
  }
}

void NemoCheckpoints::write(const std::string& name, const std::vector<ConstRegion>& tensors,
                            const RunState& state) {
  const std::string path = join(options_.folder, name), marker = marker_of(path);
  from_first_together(group_, [&] {
    files_->remove_all(marker);
    write_file(*files_, marker, "");
    files_->sync_folder(options_.folder);
    files_->remove_all(path);
    files_->create_folder(path);
    const std::string context = join(path, "context");
    files_->create_folder(context);
    for (const ContextFile& file : context_files(config_, arguments_)) {
      write_file(*files_, join(context, file.name), file.text);
    }
    files_->sync_folder(context);
    return std::string();
  });
  TorchDistOptions format;
  format.release = kFullyReshardable;  // of NeMo 2's days
  if (!arguments_.use_distributed_optimizer) format.optimizer = ShardedOptimizer::plain;
  Snapshot snapshot;
  snapshot.iteration = state.iteration.value_or(0);
  snapshot.tensors = tensors;
  snapshot.format = torch_dist_format(state, format);
  SaveOptions options;
  options.begin.folder = "weights";
  options.begin.tracker = TrackerMove::never;
  ferry::save(files_, path, snapshot, group_, options);
  from_first_together(group_, [&] {
    files_->sync_folder(options_.folder);
    files_->remove_all(marker);
    print_(fmt::format("saved {}\n", path));
    return std::string();
  });
}

void NemoCheckpoints::remove(const std::string& name) {
  const std::string path = join(options_.folder, name), marker = marker_of(path);
  from_first_together(group_, [&] {
    files_->remove_all(marker);
    write_file(*files_, marker, "");
    files_->sync_folder(options_.folder);
    files_->remove_all(path);
    files_->remove_all(marker);
    return std::string();
  });
}

std::unique_ptr<const Source> open_nemo_source(const std::shared_ptr<const FileSystem>& files,
                                               Group& group, const std::string& path,
                                               bool weights_only,
                                               std::vector<std::string> skipped_prefixes) {
  auto source = std::make_unique<Source>();
  source->checkpoint = open_together(files, path, group);
  source->state = state_of(source->checkpoint);
  source->weights_only = weights_only;
  source->skipped_prefixes = std::move(skipped_prefixes);
  const Catalog& catalog = source->checkpoint.catalog;
  for (const Object& object : catalog.objects) {
    if (object.name != kDataModule) continue;
    const LoadedValue module = read_object(catalog, object);
    source->consumed.train = module.value.get("consumed_samples").integer();
  }
  return source;
}

}  // namespace ferry::mnist
