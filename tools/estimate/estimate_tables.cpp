#include <fmt/format.h>

#include <utility>

#include "tools/estimate/estimate_output.h"
#include "tools/terminal/text.h"
#include "trainer/arguments/train_arguments.h"

namespace ferry::tool {
namespace {

constexpr double kGiB = 1 << 30;
constexpr double kDay = 24 * 3600;  // seconds

std::string gib(int64_t bytes) { return fmt::format("{:.3f}", static_cast<double>(bytes) / kGiB); }

EstimateTable memory_table(const Estimate& estimate) {
  EstimateTable table{"memory", "Memory of a rank, GiB, by pipeline stage", "", {}, {}};
  table.is_number.assign(8, true);
  table.rows.push_back({"stage", "parameters held", "parameters", "gradients", "optimizer",
                        "activations", "staging", "total"});
  for (const StageMemory& stage : estimate.stages) {
    table.rows.push_back({fmt::format("{}", stage.stage), grouped(stage.parameter_count),
                          gib(stage.parameters), gib(stage.gradients), gib(stage.optimizer),
                          gib(stage.activations), gib(stage.staging), gib(stage.total)});
  }
  return table;
}

EstimateTable recompute_table(const Estimate& estimate) {
  EstimateTable table{"recompute",
                      "With other recomputation, of the stage that takes most, GiB",
                      "",
                      {{"recomputed", "activations", "total"}},
                      {false, true, true}};
  for (const RecomputeChoice& choice : estimate.recompute) {
    table.rows.push_back({choice.name, gib(choice.activations), gib(choice.bytes)});
  }
  return table;
}

EstimateTable checkpoint_table(const Estimate& estimate) {
  const bool is_timed = !estimate.checkpoints.empty() && estimate.checkpoints[0].seconds;
  EstimateTable table{"checkpoints",
                      "Checkpoints",
                      "",
                      {{"format", "with", "GiB", "GB"}},
                      {false, false, true, true}};
  if (is_timed) {
    table.rows[0].emplace_back("save or load");
    table.is_number.push_back(true);
  }
  for (const CheckpointSize& size : estimate.checkpoints) {
    std::vector<std::string> row = {size.format,
                                    size.has_optimizer ? "weights and optimizer" : "weights",
                                    fmt::format("{:.1f}", static_cast<double>(size.bytes) / kGiB),
                                    fmt::format("{:.1f}", static_cast<double>(size.bytes) / 1e9)};
    if (size.seconds) row.push_back(human_seconds(*size.seconds));
    table.rows.push_back(std::move(row));
  }
  return table;
}

EstimateTable rate_table(const TrainingFigures& training) {
  EstimateTable table{"rates",
                      "Learning rate",
                      "",
                      {{"after iteration", "consumed samples", "learning rate"}},
                      {true, true, true}};
  for (const TrainingFigures::Rate& rate : training.rates) {
    table.rows.push_back({grouped(rate.iteration), grouped(rate.samples),
                          fmt::format("{:.6E}", rate.learning_rate)});
  }
  return table;
}

EstimateTable layout_table(const EstimateOutput& output) {
  const LayoutSearch& search = *output.estimate->layouts;
  const uint64_t memory = *output.options.gpu_memory_bytes;
  EstimateTable table{"layouts",
                      fmt::format("Layouts that fit {} GPUs of {}, best first", output.options.gpus,
                                  human_bytes(memory)),
                      "",
                      {{"TP", "PP", "CP", "EP", "DP", "recompute", "GiB", "tokens/s a GPU", "why"}},
                      {true, true, true, true, true, false, true, true, false}};
  for (const LayoutChoice& choice : search.fitting) {
    if (table.rows.size() > output.most_layouts) break;
    table.rows.push_back({fmt::format("{}", choice.tensor), fmt::format("{}", choice.pipeline),
                          fmt::format("{}", choice.context), fmt::format("{}", choice.expert),
                          fmt::format("{}", choice.data), choice.recompute, gib(choice.bytes),
                          output.estimate->speed
                              ? grouped(static_cast<int64_t>(choice.tokens_per_second))
                              : "unknown",
                          choice.reason});
  }
  table.below = fmt::format("{} of {} layouts fit.", search.fitting.size(), search.tried);
  if (search.fitting.empty() && search.least_bytes > 0) {
    table.below = fmt::format(
        "None of {} layouts fits: the smallest takes {} GiB a rank. More GPUs, a smaller "
        "--micro-batch-size or a shorter --seq-length take less.",
        search.tried, gib(search.least_bytes));
  } else if (search.fitting.empty() && search.tried > 0) {
    table.below = fmt::format("None of {} layouts fits, by far.", search.tried);
  } else if (search.tried == 0) {
    table.below = "No layout divides the model over so many GPUs: choose another number.";
  }
  return table;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> estimate_facts(const EstimateOutput& output) {
  const Estimate& estimate = *output.estimate;
  const TrainArguments& a = *estimate.arguments;
  const ParameterCounts& counts = estimate.parameters;
  std::vector<std::pair<std::string, std::string>> facts = {
      {"model",
       fmt::format("{}: {} layers, hidden {}, {} heads, vocabulary {}", estimate.what,
                   *a.num_layers, *a.hidden_size, *a.num_attention_heads, *a.padded_vocab_size)},
      {"parameters", grouped(counts.total)}};
  if (counts.without_padding != counts.total) {
    facts.back().second += fmt::format(", of which {} without the vocabulary's padding",
                                       grouped(counts.without_padding));
  }
  if (a.num_experts) facts.emplace_back("active a token", grouped(counts.active));
  facts.emplace_back("ranks", fmt::format("{}: TP {} PP {} CP {} EP {} DP {}", a.world_size,
                                          a.tensor_model_parallel_size,
                                          a.pipeline_model_parallel_size, a.context_parallel_size,
                                          a.expert_model_parallel_size, a.data_parallel_size));
  facts.emplace_back("operations a token", fmt::format("{:.4e}", estimate.operations_per_token));
  if (const auto& speed = estimate.speed) {
    facts.emplace_back("tokens/s a GPU",
                       fmt::format("{} at {:.0f} TFLOP/s, as {} reached with {} on one {} ({})",
                                   grouped(static_cast<int64_t>(speed->tokens_per_second)),
                                   speed->from->teraflops(), speed->from->program,
                                   speed->from->model, speed->from->gpu, speed->from->source));
  }
  if (const auto& training = estimate.training) {
    facts.emplace_back(
        "iterations",
        fmt::format("{} of {} samples in {} micro-batches", grouped(training->iterations),
                    grouped(training->global_batch_size), grouped(training->micro_batches)));
    facts.emplace_back(
        "samples",
        fmt::format("train {}, validation {}, test {}", grouped(training->train_samples),
                    grouped(training->validation_samples), grouped(training->test_samples)));
    facts.emplace_back("whole run", fmt::format("{} tokens, {:.3e} operations",
                                                grouped(training->tokens), training->operations));
    if (const auto& speed = estimate.speed) {
      const double seconds = static_cast<double>(training->tokens) / speed->tokens_per_second /
                             static_cast<double>(a.world_size);
      facts.back().second += fmt::format(
          ", {} on {} such GPUs",
          seconds < 2 * kDay ? human_seconds(seconds) : fmt::format("{:.1f} days", seconds / kDay),
          a.world_size);
    }
  }
  return facts;
}

std::vector<EstimateTable> estimate_tables(const EstimateOutput& output) {
  const Estimate& estimate = *output.estimate;
  std::vector<EstimateTable> tables;
  if (!estimate.stages.empty()) tables.push_back(memory_table(estimate));
  if (!estimate.recompute.empty()) tables.push_back(recompute_table(estimate));
  tables.push_back(checkpoint_table(estimate));
  if (estimate.training && !estimate.training->rates.empty()) {
    tables.push_back(rate_table(*estimate.training));
  }
  if (output.estimate->layouts) tables.push_back(layout_table(output));
  return tables;
}

}  // namespace ferry::tool
