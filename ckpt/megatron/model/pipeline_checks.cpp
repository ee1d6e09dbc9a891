#include "ckpt/megatron/model/pipeline_checks.h"

#include <algorithm>
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
  int64_t layers() const { return first.value_or(0) + last.value_or(0); }
  bool are_filled() const { return first.value_or(1) > 0 && last.value_or(1) > 0; }
  bool fit_virtual(int64_t stages) const {
    return first.value_or(0) % stages == 0 && last.value_or(0) % stages == 0;
  }
  std::string_view name() const {
    return !last ? "the first stage" : !first ? "the last stage" : "the first and last stage";
  }

  std::optional<int64_t> first, last;
};

bool shares_out(int64_t layers, int64_t stages, int64_t virtual_stages) {
  if (stages < 0 || layers < 0) return false;
  return stages == 0 ? layers == 0 : layers > 0 && layers % (stages * virtual_stages) == 0;
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
    fail(ErrorKind::invalid, "--vpp {}: virtual stages need at least two pipeline stages",
         run.virtual_pipeline);
  }
  const Ends ends(run);
  const int64_t counted = run.layers + run.embedding_is_a_layer + run.loss_is_a_layer;
  const auto fits = [&](int64_t stages, int64_t virtual_stages) {
    return ends.are_filled() && ends.fit_virtual(virtual_stages) &&
           shares_out(counted - ends.layers(), stages - ends.stages(), virtual_stages);
  };
  if (fits(run.pipeline, run.virtual_pipeline)) return;
  std::string what = fmt::format("{} layers", counted);
  if (counted != run.layers) what += " (embedding or loss counted as one each)";
  if (ends.stages() > 0) what += fmt::format(", {} of them on {},", ends.layers(), ends.name());
  what += fmt::format(" cannot be split over {} pipeline stages", run.pipeline);
  if (fits(run.pipeline, 1)) {
    fail(ErrorKind::invalid, "{} of {} virtual stages: for --vpp, {}", what, run.virtual_pipeline,
         those_that_fit(1, counted, [&](int64_t n) { return fits(run.pipeline, n); }));
  }
  what += ": for --pp, " +
          those_that_fit(1, counted + ends.stages(), [&](int64_t n) { return fits(n, 1); });
  if (ends.stages() > 0) {
    const int64_t others = run.pipeline - ends.stages();
    what += fmt::format("; with --pp {}, for {}{}, {}", run.pipeline, ends.name(),
                        ends.stages() == 2 ? " together" : "",
                        those_that_fit(ends.stages(), counted, [&](int64_t n) {
                          return shares_out(counted - n, others, 1);
                        }));
  }
  fail(ErrorKind::invalid, "{}", what);
}

void check_stage_letters(const StageLetters& stages, int64_t pipeline) {
  const auto refuse = [](const auto& what) -> void {
    fail(ErrorKind::invalid, "--pipeline-model-parallel-layout: {}", what);
  };
  std::string all;
  for (const std::string& stage : stages) all += stage;
  const auto count = [&](char letter) { return std::count(all.begin(), all.end(), letter); };
  for (const auto& [letter, name] : {std::pair{'E', "embedding"}, std::pair{'L', "loss"}}) {
    if (count(letter) == 1) continue;
    refuse(fmt::format("{} stands in it {} times; one {} is wanted", letter, count(letter), name));
  }
  if (all.front() != 'E') refuse(fmt::format("{} comes first; that is for E", all.front()));
  if (all.back() != 'L') refuse(fmt::format("{} comes last; that is for L", all.back()));
  const size_t mtp = all.find('m');
  if (mtp == std::string::npos) return;
  if (all.find('t', mtp) != std::string::npos) {
    refuse("m stands before t; prediction layers come behind all decoder layers");
  }
  const auto has_mtp = [](const std::string& stage) {
    return stage.find('m') != std::string::npos;
  };
  if (std::count_if(stages.begin(), stages.end(), has_mtp) > 1) {
    refuse("m stands in several stages; all prediction layers belong into one");
  }
  const auto stage = std::find_if(stages.begin(), stages.end(), has_mtp) - stages.begin();
  if (stage < static_cast<int64_t>(stages.size()) - pipeline) {
    refuse(
        fmt::format("m stands in stage {}; prediction layers belong into the last virtual stage "
                    "of a rank, one of the last {} stages",
                    stage + 1, pipeline));
  }
}

}  // namespace ferry
