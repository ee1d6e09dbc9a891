#include "estimate/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <utility>

#include "ckpt/base/box.h"
#include "ckpt/base/error.h"
#include "ckpt/base/threads.h"
#include "trainer/language/options.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/flops.h"

namespace ferry {
namespace {

constexpr int64_t kLongSequence = 16384;  // tokens, from which context ranks are worth a look
constexpr int64_t kMostTried = 400;       // layouts
constexpr double kUnknownRate = 400e12;   // operations a second, where nothing like it was measured
constexpr int64_t kBytesHalf = 2;         // of an element that is sent

struct Candidate {
  int64_t tensor, pipeline, context, expert;
};

// Full recomputation is tried only where it is needed: it costs time.
enum class Recomputation : uint8_t { as_said, full };

std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t d = 1; d <= std::min(number, most); ++d) {
    if (number % d == 0) all.push_back(d);
  }
  return all;
}

std::vector<Candidate> candidates(const TrainArguments& a, const EstimateOptions& options) {
  std::vector<Candidate> all;
  const int64_t heads = a.num_attention_heads.value_or(1);
  const int64_t shares = a.group_query_attention ? std::max<int64_t>(a.num_query_groups, 1) : heads;
  const bool is_long = a.seq_length.value_or(0) >= kLongSequence;
  for (const int64_t tensor : divisors(shares, options.gpus_per_node)) {
    for (const int64_t pipeline : divisors(options.gpus, a.num_layers.value_or(1))) {
      for (const int64_t context : divisors(is_long ? 8 : 1, options.gpus)) {
        if (options.gpus % (tensor * pipeline * context) != 0) continue;
        const int64_t most_experts = options.gpus / (tensor * pipeline);
        for (const int64_t expert : divisors(a.num_experts.value_or(1), most_experts)) {
          if (most_experts % expert != 0) continue;
          all.push_back({tensor, pipeline, context, expert});
        }
      }
    }
  }
  return all;
}

// Where layers do not divide, the last stage, which has the output layer besides, has fewer.
std::optional<int64_t> last_stage_layers(const TrainArguments& a, int64_t pipeline) {
  const int64_t layers = a.num_layers.value_or(1);
  if (layers % pipeline == 0) return std::nullopt;
  return layers - (layers + pipeline - 1) / pipeline * (pipeline - 1);
}

EstimateSource source_of(const EstimateSource& source, const Candidate& candidate,
                         Recomputation recomputation) {
  EstimateSource own{source.arguments, source.what, source.vocabulary, source.model, {}};
  TrainArguments& a = own.arguments;
  set_tensor_ranks(a, candidate.tensor);
  a.pipeline_model_parallel_size = candidate.pipeline;
  a.context_parallel_size = candidate.context;
  a.expert_model_parallel_size = candidate.expert;
  a.sequence_parallel = candidate.tensor > 1;
  a.virtual_pipeline_model_parallel_size.reset();
  a.num_layers_per_virtual_pipeline_stage.reset();
  a.num_virtual_stages_per_pipeline_rank.reset();
  a.decoder_first_pipeline_num_layers.reset();
  a.pipeline_model_parallel_layout.clear();
  a.decoder_last_pipeline_num_layers = last_stage_layers(a, candidate.pipeline);
  if (own.vocabulary > 0) a.padded_vocab_size.reset();
  if (recomputation == Recomputation::full) {
    a.recompute_granularity = "full";
    a.recompute_method = "uniform";
    a.recompute_num_layers = 1;
  }
  return own;
}

// How long a step takes, by its parts, in seconds.
class StepTime {
 public:
  StepTime(const TrainArguments& a, const StagePlan& most, double flops_per_second,
           int64_t gpus_per_node)
      : a_(a), most_(most), rate_(flops_per_second), node_(gpus_per_node) {}

  double computation() const {
    const double again = a_.recompute_granularity == "full" ? 4.0 / 3 : 1;
    return useful() * again;
  }

  // Operations of a micro-batch, without what is computed twice.
  double useful() const {
    const double operations = floating_point_operations(a_, *a_.micro_batch_size);
    const double uneven = layers() * static_cast<double>(a_.pipeline_model_parallel_size) /
                          static_cast<double>(*a_.num_layers);
    return uneven * operations / static_cast<double>(model_ranks()) / rate_;
  }

  // Two sums over tensor ranks a layer in each pass, as reduce-scatter and all-gather.
  double tensor() const {
    if (a_.tensor_model_parallel_size == 1) return 0;
    const double passes = a_.recompute_granularity == "full" ? 3 : 2;
    const double bytes = 2 * passes * 2 * share(a_.tensor_model_parallel_size) * hidden_bytes();
    return bytes * layers() / kNodeBytesPerSecond;
  }

  double experts() const {
    if (a_.expert_model_parallel_size == 1) return 0;
    const auto chosen = static_cast<double>(a_.moe_router_topk);
    const double bytes = 4 * chosen * share(a_.expert_model_parallel_size) * hidden_bytes() /
                         static_cast<double>(a_.tensor_model_parallel_size);
    return bytes * layers() / link(a_.tensor_model_parallel_size * a_.expert_model_parallel_size);
  }

  double stages() const {
    if (a_.pipeline_model_parallel_size == 1) return 0;
    return 2 * hidden_bytes() / static_cast<double>(a_.tensor_model_parallel_size) /
           link(a_.world_size);
  }

  // Seconds for gradients and parameters, less what overlaps with `backward`, the backward pass of
  // the last micro-batches.
  double data(double backward) const {
    if (a_.data_parallel_size == 1) return 0;
    const double bytes = static_cast<double>(most_.state.gradients + most_.state.parameters) *
                         share(a_.data_parallel_size);
    const int64_t together =
        a_.tensor_model_parallel_size * a_.context_parallel_size * a_.data_parallel_size;
    return std::max(0.0, bytes / link(together) - backward);
  }

 private:
  static double share(int64_t ranks) {
    return static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  }
  int64_t model_ranks() const {
    return a_.tensor_model_parallel_size * a_.pipeline_model_parallel_size *
           a_.context_parallel_size;
  }
  double layers() const {
    return std::ceil(static_cast<double>(*a_.num_layers) /
                     static_cast<double>(a_.pipeline_model_parallel_size));
  }
  double hidden_bytes() const {
    const double tokens = static_cast<double>(*a_.micro_batch_size * *a_.seq_length) /
                          static_cast<double>(a_.context_parallel_size);
    return tokens * static_cast<double>(*a_.hidden_size * kBytesHalf);
  }
  double link(int64_t ranks) const {
    return ranks <= node_ ? kNodeBytesPerSecond : kNetworkBytesPerSecond;
  }

  const TrainArguments& a_;
  const StagePlan& most_;
  double rate_;
  int64_t node_;
};

std::string reason_of(const TrainArguments& a, const LayoutChoice& choice, double memory,
                      double efficiency) {
  std::vector<std::string> parts;
  if (choice.tensor > 1) parts.push_back(fmt::format("tensor ranks in a node ({})", choice.tensor));
  if (choice.pipeline > 1) {
    parts.push_back(fmt::format("bubble {:.0f} % with {} micro-batches", 100 * choice.bubble,
                                choice.micro_batches));
  }
  if (a.decoder_last_pipeline_num_layers) {
    parts.push_back(
        fmt::format("{} layers in the last stage", *a.decoder_last_pipeline_num_layers));
  }
  if (choice.expert > 1) parts.push_back(fmt::format("experts over {}", choice.expert));
  if (a.recompute_granularity == "full") parts.emplace_back("a third more computation");
  parts.push_back(fmt::format("sending takes {:.0f} %", 100 * (1 - efficiency)));
  const double free = memory - static_cast<double>(choice.bytes);
  parts.push_back(fmt::format("{:.0f} % of memory free", 100 * free / memory));
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

LayoutChoice choice_of(const TrainArguments& a, const StagePlan& most, const SpeedEstimate& speed,
                       const EstimateOptions& options) {
  const BatchSizes sizes = batch_sizes(a);
  LayoutChoice choice;
  choice.tensor = a.tensor_model_parallel_size;
  choice.pipeline = a.pipeline_model_parallel_size;
  choice.context = a.context_parallel_size;
  choice.expert = a.expert_model_parallel_size;
  choice.data = a.data_parallel_size;
  choice.recompute = a.recompute_granularity.empty() ? "none" : a.recompute_granularity;
  choice.micro_batches = batch_at(sizes, sizes.steps.back().from_samples).micro_batches;
  choice.bytes = most.bytes();
  const auto passes = static_cast<double>(choice.micro_batches);
  const auto waits = static_cast<double>(choice.pipeline - 1);
  choice.bubble = waits / (passes + waits);
  const double rate = speed.from != nullptr ? speed.from->teraflops() * 1e12 : kUnknownRate;
  const StepTime time(a, most, rate, options.gpus_per_node);
  const double pass = time.computation() + time.tensor() + time.experts() + time.stages();
  const double seconds = (passes + waits) * pass + time.data(2.0 / 3 * time.computation());
  const double tokens = static_cast<double>(*a.global_batch_size * *a.seq_length);
  choice.tokens_per_second = tokens / seconds / static_cast<double>(a.world_size);
  const double sending = (passes + waits) * time.computation() / seconds;
  choice.reason = reason_of(a, choice, static_cast<double>(*options.gpu_memory_bytes), sending);
  return choice;
}

// Nothing where sizes do not divide.
std::optional<TrainArguments> arguments_of(const EstimateSource& source, const Candidate& candidate,
                                           Recomputation recomputation, int64_t gpus) {
  std::vector<std::string> notes;
  try {
    TrainArguments a = completed_for(source_of(source, candidate, recomputation), gpus, notes);
    check_run(a);
    return a;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// A rank's parameters and gradients at the least: whether a plan is worth its time.
double least_bytes(const TrainArguments& a, const RunModel& model) {
  // bf16, and gradients in fp32 unless they were asked for in bf16.
  const double bytes = !a.bf16 || !a.accumulate_allreduce_grads_in_fp32 ? 4 : 6;
  double elements = 0;
  for (const ModelTensor& tensor : model.layout.tensors()) {
    elements += static_cast<double>(element_count(tensor.shape, tensor.name));
  }
  const int64_t ranks =
      a.tensor_model_parallel_size * a.pipeline_model_parallel_size * a.expert_model_parallel_size;
  return bytes * elements / static_cast<double>(ranks);
}

// A layout whose sizes divide, and what was found of it.
struct Trial {
  Candidate candidate;
  TrainArguments arguments;
  std::optional<LayoutChoice> choice = {};  // it fits
  int64_t least_bytes = 0;                  // of what does not fit; 0: nobody planned it to the end
};

// The layouts that sizes and arguments allow, kMostTried at most.
std::vector<Trial> trials(const EstimateSource& source, const EstimateOptions& options,
                          std::vector<std::string>& notes) {
  std::vector<Trial> all;
  for (const Candidate& candidate : candidates(source.arguments, options)) {
    auto arguments = arguments_of(source, candidate, Recomputation::as_said, options.gpus);
    if (!arguments) continue;
    if (std::ssize(all) == kMostTried) {
      notes.push_back(fmt::format("of more layouts than {} the first were tried", kMostTried));
      break;
    }
    all.push_back({candidate, std::move(*arguments)});
  }
  return all;
}

// Plans the memory of `a`, and where that fits sets the choice. Any thread.
void look(const TrainArguments& a, const EstimateOptions& options, Trial& trial) {
  const auto fits = [&](double bytes) {
    const auto memory = static_cast<double>(*options.gpu_memory_bytes);
    return bytes * (1 + kReservedShare) + kReservedBytes <= memory;
  };
  const RunModel model = model_of(a, nullptr);
  if (!fits(least_bytes(a, model))) return;
  StagePlan most;
  try {
    most = largest(memory_plan(a, model, device_kind(a)));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::exhausted) throw;
    return;
  }
  if (!fits(static_cast<double>(most.bytes()))) {
    const bool is_first = trial.least_bytes == 0;
    trial.least_bytes = is_first ? most.bytes() : std::min(trial.least_bytes, most.bytes());
    return;
  }
  const double operations = floating_point_operations(a, 1) / static_cast<double>(*a.seq_length);
  trial.choice = choice_of(a, most, speed_for(gpu_of(options), operations), options);
}

}  // namespace

LayoutSearch find_layouts(const EstimateSource& source, const EstimateOptions& options) {
  LayoutSearch search;
  std::vector<Trial> all = trials(source, options, search.notes);
  search.tried = std::ssize(all);
  const bool is_said = !source.arguments.recompute_granularity.empty();
  std::atomic<size_t> next = 0;
  on_threads(thread_count(0), [&](int, const std::atomic<bool>& stop) {
    for (size_t i = next++; i < all.size() && !stop; i = next++) {
      Trial& trial = all[i];
      look(trial.arguments, options, trial);
      if (trial.choice || is_said) continue;
      const auto full = arguments_of(source, trial.candidate, Recomputation::full, options.gpus);
      if (full) look(*full, options, trial);
    }
  });
  for (Trial& trial : all) {
    if (trial.choice) search.fitting.push_back(std::move(*trial.choice));
    const int64_t bytes = trial.least_bytes;
    const bool is_least = search.least_bytes == 0 || bytes < search.least_bytes;
    if (bytes > 0 && is_least) search.least_bytes = bytes;
  }
  std::stable_sort(search.fitting.begin(), search.fitting.end(),
                   [](const LayoutChoice& x, const LayoutChoice& y) {
                     return x.tokens_per_second > y.tokens_per_second;
                   });
  return search;
}

}  // namespace ferry
