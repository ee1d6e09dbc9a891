#include "run.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "ckpt/base/error.h"
#include "ckpt/group/group.h"
#include "image_model.h"
#include "metric_tracker.h"
#include "nemo/checkpoint_names.h"
#include "nemo/config.h"
#include "nemo/nemo_checkpoints.h"
#include "pictures.h"
#include "predictions.h"
#include "trainer/arguments/complete.h"
#include "trainer/arguments/parse.h"
#include "trainer/loop/training_loop.h"

namespace ferry::mnist {
namespace {

// Layers, heads and the length of a sequence are required, but not used by these networks.
constexpr const char* kTutorial =
    "--num-layers 1 --num-attention-heads 1 --seq-length 1048 --max-position-embeddings 1048 "
    "--micro-batch-size 128 --global-batch-size 128 --train-iters 500 --eval-interval 25 "
    "--eval-iters 5 --log-interval 25 --save-interval 25 --optimizer adam --lr 1e-4 "
    "--lr-decay-style constant --override-opt-param-scheduler --weight-decay 0.01 --clip-grad 1.0 "
    "--use-distributed-optimizer "
    "--dist-ckpt-optim-fully-reshardable --tokenizer-type NullTokenizer --vocab-size 1 ";

TrainArguments arguments_of(std::string first, const std::vector<std::string>& more) {
  const auto files = posix_file_system();
  std::vector<std::string> words = split_words(kTutorial + std::move(first), "the tutorial");
  words.insert(words.end(), more.begin(), more.end());
  TrainArguments arguments = parse_arguments(words, *files);
  std::vector<std::string> notes;
  complete_arguments(arguments, Launch{}, notes);
  return arguments;
}

// All ranks of a run, as threads of this process, each with one for its kernels: the networks are
// too small to be shared out.
void on_ranks(const TrainArguments& arguments, const Print& print,
              const std::function<void(const RankSetup&)>& work) {
  const auto files = posix_file_system();
  const ExitWatch watch(arguments, *files);
  std::mutex mutex;
  const auto ranks = static_cast<int>(arguments.world_size);
  on_rank_threads(
      ranks, [&](int, const std::shared_ptr<Group>& group, const std::shared_ptr<Links>& links) {
        RankSetup setup{group, links, files, &watch, 1, [&](std::string_view text) {
                          const std::lock_guard lock(mutex);
                          print(text);
                        }};
        work(setup);
      });
}

std::string run_folder(const StageOptions& options) {
  const std::string run = join(options.log_dir, options.name);
  if (options.resume_if_exists) return run;
  // A run that goes on from nothing has a folder of its own.
  std::string version = date_and_time(now_microseconds()).substr(0, 19);
  std::ranges::replace(version, ' ', '_');
  std::ranges::replace(version, ':', '-');
  return join(run, version);
}

std::vector<std::pair<double, double>> points_of(const MetricTracker::Collection& collection,
                                                 const std::string& name) {
  std::vector<std::pair<double, double>> points;
  const auto values = collection.values.find(name);
  if (values == collection.values.end()) return points;
  for (size_t i = 0; i < values->second.size(); ++i) {
    points.emplace_back(static_cast<double>(collection.iterations[i]), values->second[i]);
  }
  return points;
}

void draw_curves(const StageOptions& options, const MetricTracker& tracker) {
  if (options.pictures.empty()) return;
  const std::string title =
      options.task == Task::classifier ? "cross entropy" : "mean squared error";
  write_over(
      join(options.pictures, "losses_" + options.name + ".svg"),
      curves_svg(title, {{"validation", "#c33", points_of(tracker.valid(), "val_loss")},
                         {"training", "#27a", points_of(tracker.train(), "reduced_train_loss")}}));
}

// Keeps the loss of an evaluation.
class LossObserver final : public RunObserver {
 public:
  void on_evaluation(DataSplit, const NamedLosses& losses, int64_t) override {
    loss_ = losses.front().second;
  }
  double loss() const { return loss_; }

 private:
  double loss_ = 0;
};

// The task of the checkpoint's model.
Task task_in(const FileSystem& files, const std::string& checkpoint) {
  Config config(Task::autoencoder);
  std::erase(config.list("override_parent_fields"), "model_cls");
  load_settings(files, checkpoint, config);
  return std::get<std::string>(config.fields.at("model_cls")) == "ExampleFineTuneModel"
             ? Task::classifier
             : Task::autoencoder;
}

}  // namespace

std::string train_stage(const StageOptions& options, const Print& print) {
  const auto files = posix_file_system();
  const std::string run = run_folder(options), folder = join(run, "checkpoints");
  Config config(options.task);
  if (!options.initial_checkpoint.empty()) {
    const auto taken = load_settings(*files, options.initial_checkpoint, config);
    print(fmt::format("settings taken from {}: {}\n", options.initial_checkpoint,
                      fmt::join(taken, ", ")));
    config.fields["initial_ckpt_path"] = options.initial_checkpoint;
    config.list("initial_ckpt_skip_keys_with_these_prefixes") = options.skipped_prefixes;
  }
  TrainArguments arguments =
      arguments_of(fmt::format("--hidden-size {} ", config.number("hidden_size")), options.words);
  arguments.save = folder;
  config.fields["hidden_size"] = arguments.hidden_size.value_or(64);
  config.fields["bf16"] = arguments.bf16;
  config.fields["fp16"] = arguments.fp16;
  config.fields["params_dtype"] = arguments.params_dtype;
  const auto resume = find_resume(
      *files, folder,
      {options.resume_from, options.resume_if_exists, options.resume_ignore_no_checkpoint, false});

  ImageModelOptions model;
  model.shape = config.shape(options.task, arguments);
  model.images = tutorial_images(*files, options.data, false);
  const int64_t batch = arguments.global_batch_size.value_or(1), size = model.images.train.size();
  NemoCheckpointOptions checkpoints{folder,
                                    options.name,
                                    "reduced_train_loss",
                                    options.save_top_k,
                                    true,
                                    std::max(size - size % batch, batch)};
  std::string last_model_path;
  on_ranks(arguments, print, [&](const RankSetup& setup) {
    MetricTracker tracker(checkpoints.samples_per_epoch);
    ImageModelOptions own = model;
    const std::string& begins_with = resume ? *resume : options.initial_checkpoint;
    if (!begins_with.empty()) {
      own.open_source = [&] {
        return open_nemo_source(files, *setup.group, begins_with, !resume,
                                resume ? std::vector<std::string>() : options.skipped_prefixes);
      };
    }
    RankParts parts;
    parts.observer = &tracker;
    parts.make_model = [&] { return std::make_unique<ImageModel>(arguments, setup, own); };
    parts.make_sink = [&](NemoCheckpoints::Print print_line) {
      return std::make_unique<NemoCheckpoints>(arguments, config, tracker, files, *setup.group,
                                               checkpoints, std::move(print_line));
    };
    try {
      train(arguments, setup, parts);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::not_found || resume || begins_with.empty()) throw;
      throw SharedError(error.kind(),
                        std::string(error.what()) +
                            ". Parameters that it need not have are named by --skip-prefix");
    }
    if (setup.group->rank() != 0) return;
    write_over(join(run, "metrics.json"), tracker.json());
    draw_curves(options, tracker);
  });
  const auto last = find_resume(*files, folder, {});
  return last ? *last + ".ckpt" : std::string();
}

double predict_stage(const PredictOptions& options, const Print& print) {
  const auto files = posix_file_system();
  const Task task = task_in(*files, options.checkpoint);
  Config config(task);
  load_settings(*files, options.checkpoint, config);
  PerSplit<OrderedImages> images = tutorial_images(*files, options.data, true);
  images.train = images.valid = {};
  const int64_t count = images.test.size();
  const TrainArguments arguments =
      arguments_of(fmt::format("--hidden-size {} --skip-train --eval-iters 1 --micro-batch-size {} "
                               "--global-batch-size {} ",
                               config.number("hidden_size"), count, count),
                   options.words);
  ImageModelOptions model;
  model.shape = config.shape(task, arguments);
  model.images = images;
  Outputs outputs(count, model.shape.outputs());
  model.outputs = &outputs;
  double loss = 0;
  on_ranks(arguments, print, [&](const RankSetup& setup) {
    LossObserver observer;
    ImageModelOptions own = model;
    own.open_source = [&] {
      return open_nemo_source(files, *setup.group, options.checkpoint, true, {});
    };
    RankParts parts;
    parts.observer = &observer;
    parts.make_model = [&] { return std::make_unique<ImageModel>(arguments, setup, own); };
    train(arguments, setup, parts);
    if (setup.group->rank() == 0) loss = observer.loss();
  });
  const ImageFile& file = *images.test.file;
  if (task == Task::autoencoder) {
    if (!options.out.empty()) draw_reconstructions(options.out, file, outputs);
    return loss;
  }
  return report_predictions(options.out, file, outputs, print);
}

}  // namespace ferry::mnist
