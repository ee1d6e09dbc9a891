#include "ckpt/megatron/model/pipeline_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <vector>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

// The stages with a number of layers of their own.
struct Ends {
  explicit Ends(const RunArguments& run)
      : first(run.first_stage_layers), last(run.last_stage_layers) {}

  int64_t stages() const { return first.has_value() + last.has_value(); }
  int64_t layers() const { return bounded(first) + bounded(last); }
  bool are_filled() const { return first.value_or(1) > 0 && last.value_or(1) > 0; }
  bool fit_virtual(int64_t stages) const {
    return first.value_or(0) % stages == 0 && last.value_or(0) % stages == 0;
  }
  std::string_view name() const {
    return !last ? "the first stage" : !first ? "the last stage" : "the first and last stage";
  }

  std::optional<int64_t> first, last;

 private:
  // More than any model has, so that sums do not overflow.
  static int64_t bounded(const std::optional<int64_t>& layers) {
    return std::min(layers.value_or(0), int64_t{1} << 40);
  }
};

bool shares_out(int64_t layers, int64_t stages, int64_t virtual_stages) {
  if (stages < 0 || layers < 0) return false;
  return stages == 0 ? layers == 0 : layers > 0 && layers % (stages * virtual_stages) == 0;
}

int64_t counted_layers(const RunArguments& run) {
  return run.layers + run.embedding_is_a_layer + run.loss_is_a_layer;
}

bool fits_stages(const RunArguments& run, int64_t stages, int64_t virtual_stages) {
  const Ends ends(run);
  return ends.are_filled() && ends.fit_virtual(virtual_stages) &&
         shares_out(counted_layers(run) - ends.layers(), stages - ends.stages(), virtual_stages);
}

// How many layers the first, or last, stage takes so that the others share the rest: of those that
// fit, the nearest to an even share.
std::optional<int64_t> end_that_fits(RunArguments run, std::optional<int64_t> RunArguments::*end) {
  std::optional<int64_t> best;
  const auto distance = [&](int64_t n) { return std::abs(n * run.pipeline - run.layers); };
  for (int64_t n = 1; n <= run.layers; ++n) {
    run.*end = n;
    if (!fits_stages(run, run.pipeline, run.virtual_pipeline)) continue;
    if (!best || distance(n) < distance(*best)) best = n;
  }
  return best;
}

// Stages of so many layers each, by letters.
std::string letters_of(const std::vector<int64_t>& stages, int64_t mtp_layers) {
  std::string text = "E";
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (stage > 0) text += "|";
    text += stages[stage] > 4 ? fmt::format("t*{}", stages[stage])
                              : std::string(static_cast<size_t>(stages[stage]), 't');
  }
  return text + std::string(static_cast<size_t>(mtp_layers), 'm') + "L";
}

constexpr int64_t kMostStages = 64;  // that anybody reads

// As even as they can be, the middle ones before the first; empty where a stage would have no
// layer.
std::string even_letters(const RunArguments& run) {
  const int64_t stages = run.pipeline * run.virtual_pipeline;
  if (run.layers < stages || stages > kMostStages) return {};
  std::vector<int64_t> layers;
  for (int64_t stage = 0; stage < stages; ++stage) {
    const int64_t place =
        (stage + stages - 1) % stages;  // the second stage is the first to get one
    layers.push_back(run.layers / stages + (place < run.layers % stages));
  }
  return letters_of(layers, run.mtp_layers);
}

// As even as stages can be that begin with one of `beginnings`, in ascending order from layer 0 on.
std::string letters_from(const std::vector<int64_t>& beginnings, const RunArguments& run) {
  const auto stages = static_cast<size_t>(run.pipeline * run.virtual_pipeline);
  if (beginnings.size() < stages || stages > kMostStages) return {};
  std::vector<int64_t> layers;
  int64_t before = 0;  // where the last one begins
  for (size_t stage = 1, next = 1; stage < stages; ++stage, ++next) {
    const int64_t even = static_cast<int64_t>(stage) * run.layers / static_cast<int64_t>(stages);
    while (next + stages - stage < beginnings.size() &&
           std::abs(beginnings[next + 1] - even) < std::abs(beginnings[next] - even)) {
      ++next;
    }
    layers.push_back(beginnings[next] - before);
    before = beginnings[next];
  }
  layers.push_back(run.layers - before);
  return letters_of(layers, run.mtp_layers);
}

// For a run whose stages are to be even, and cannot be: how the same stages could be uneven. Empty
// where no way is known.
std::string uneven_ways(RunArguments run) {
  if (run.first_stage_layers || run.last_stage_layers || run.layers > (1 << 16)) return {};
  std::vector<std::string> ways;
  const bool counts = run.embedding_is_a_layer || run.loss_is_a_layer;
  run.embedding_is_a_layer = run.loss_is_a_layer = false;
  const auto add_end = [&](std::string_view name, std::optional<int64_t> RunArguments::*end) {
    const auto layers = end_that_fits(run, end);
    if (!layers) return;
    ways.push_back(fmt::format("{} (each other stage has {})",
                               option(name, fmt::to_string(*layers)),
                               (run.layers - *layers) / (run.pipeline - 1)));
  };
  add_end("first_stage_layers", &RunArguments::first_stage_layers);
  add_end("last_stage_layers", &RunArguments::last_stage_layers);
  constexpr OptionName kEmbedding = option("embedding_is_a_layer");
  constexpr OptionName kLoss = option("loss_is_a_layer");
  const int64_t shares = run.pipeline * run.virtual_pipeline;
  if (!counts && (run.layers + 1) % shares == 0) {
    ways.push_back(fmt::format("{} or {}", kEmbedding, kLoss));
  } else if (!counts && (run.layers + 2) % shares == 0) {
    ways.push_back(fmt::format("{} with {}", kEmbedding, kLoss));
  }
  if (const std::string letters = even_letters(run); !letters.empty()) {
    ways.push_back(fmt::to_string(option("stage_letters", letters)));
    if (run.virtual_pipeline > 1)
      ways.back() += fmt::format(" without {}", option("virtual_pipeline"));
  }
  if (ways.empty()) return {};
  std::string text = fmt::format(
      "; {}for {} uneven stages: ", counts ? "without counting them, " : "", run.pipeline);
  for (size_t i = 0; i < ways.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < ways.size() ? ", " : ", or ") + ways[i];
  }
  return text;
}

}  // namespace

std::string those_that_fit(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits) {
  constexpr size_t kShown = 12;
  constexpr int64_t kTried = 1 << 16;
  std::vector<int64_t> numbers;
  for (int64_t n = least; n <= std::min(most, kTried) && numbers.size() <= kShown; ++n) {
    if (fits(n)) numbers.push_back(n);
  }
  if (numbers.empty()) return "none fits";
  const bool more = numbers.size() > kShown;
  if (more) numbers.pop_back();
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i) {
    const bool last = i + 1 == numbers.size() && !more;
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", numbers[i]);
  }
  return text + (more ? ", ... fit" : numbers.size() == 1 ? " fits" : " fit");
}

void check_stages(const RunArguments& run) {
  if (run.virtual_pipeline > 1 && run.pipeline == 1) {
    fail(ErrorKind::invalid, "{}: virtual stages need at least two pipeline stages",
         option("virtual_pipeline", fmt::to_string(run.virtual_pipeline)));
  }
  const Ends ends(run);
  const int64_t counted = counted_layers(run);
  const auto fits = [&](int64_t stages, int64_t virtual_stages) {
    return fits_stages(run, stages, virtual_stages);
  };
  if (fits(run.pipeline, run.virtual_pipeline)) return;
  std::string what = fmt::format("{} layers", counted);
  if (counted != run.layers) what += " (embedding or loss counted as one each)";
  if (ends.stages() > 0) what += fmt::format(", {} of them on {},", ends.layers(), ends.name());
  what += fmt::format(" cannot be split over {} pipeline stages", run.pipeline);
  if (fits(run.pipeline, 1)) {
    fail(ErrorKind::invalid, "{} of {} virtual stages: for {}, {}{}", what, run.virtual_pipeline,
         option("virtual_pipeline"),
         those_that_fit(1, counted, [&](int64_t n) { return fits(run.pipeline, n); }),
         uneven_ways(run));
  }
  what += fmt::format(
      ": for {}, {}", option("pipeline"),
      those_that_fit(1, counted + ends.stages(), [&](int64_t n) { return fits(n, 1); }));
  if (ends.stages() > 0) {
    const int64_t others = run.pipeline - ends.stages();
    what += fmt::format("; with {}, for {}{}, {}", option("pipeline", fmt::to_string(run.pipeline)),
                        ends.name(), ends.stages() == 2 ? " together" : "",
                        those_that_fit(ends.stages(), counted, [&](int64_t n) {
                          return shares_out(counted - n, others, 1);
                        }));
  }
  fail(ErrorKind::invalid, "{}{}", what, uneven_ways(run));
}

void check_stage_letters(const StageLetters& stages, int64_t pipeline) {
  const auto refuse = [](const auto& what) -> void {
    fail(ErrorKind::invalid, "{}: {}", option("stage_letters"), what);
  };
  std::string all;
  for (const std::string& stage : stages) all += stage;
  const auto count = [&](char letter) { return std::count(all.begin(), all.end(), letter); };
  for (const auto& [letter, name] : {std::pair{'E', "embedding"}, std::pair{'L', "loss"}}) {
    if (count(letter) == 1) continue;
    refuse(fmt::format("it has {} {} times; it must have one {}", letter, count(letter), name));
  }
  if (all.front() != 'E') refuse(fmt::format("{} comes first; that is for E", all.front()));
  if (all.back() != 'L') refuse(fmt::format("{} comes last; that is for L", all.back()));
  const size_t mtp = all.find('m');
  if (mtp == std::string::npos) return;
  if (all.find('t', mtp) != std::string::npos) {
    refuse("m comes before t; prediction layers follow all decoder layers");
  }
  const auto has_mtp = [](const std::string& stage) {
    return stage.find('m') != std::string::npos;
  };
  if (std::count_if(stages.begin(), stages.end(), has_mtp) > 1) {
    refuse("m is in several stages; all prediction layers belong in one");
  }
  const auto stage = std::find_if(stages.begin(), stages.end(), has_mtp) - stages.begin();
  if (stage < static_cast<int64_t>(stages.size()) - pipeline) {
    refuse(
        fmt::format("m is in stage {}; prediction layers belong in the last virtual stage of a "
                    "rank, one of the last {} stages",
                    stage + 1, pipeline));
  }
}

void check_indexers(const RunArguments& run, const PipelineLayout& stages) {
  if (run.mixers.index_heads == 0 || run.mixers.index_every == 1) return;
  std::vector<int64_t> beginnings;
  for (int64_t layer = 0; layer < run.layers; ++layer) {
    if (run.mixers.has_indexer(layer)) beginnings.push_back(layer);
  }
  for (int64_t chunk = 0; chunk < stages.chunks(); ++chunk) {
    for (int64_t stage = 0; stage < stages.stages(); ++stage) {
      const StageContents& contents = stages.at(stage, chunk);
      if (contents.layers == 0 || run.mixers.has_indexer(contents.first_layer)) continue;
      const std::string letters = letters_from(beginnings, run);
      fail(
          ErrorKind::invalid,
          "stage {}{} would begin with decoder.layers.{}, which attends to what the indexer of "
          "an earlier layer chose, and Megatron-LM does not hand that on to another stage; for the "
          "first layer of a stage, {}{}",
          stage + 1, stages.chunks() > 1 ? fmt::format(" of virtual stage {}", chunk + 1) : "",
          contents.first_layer,
          those_that_fit(0, run.layers, [&](int64_t n) { return run.mixers.has_indexer(n); }),
          letters.empty() ? "" : fmt::format(": {}", option("stage_letters", letters)));
    }
  }
}

}  // namespace ferry
