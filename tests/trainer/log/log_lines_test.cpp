#include "trainer/log/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>
#include <regex>
#include <string>

#include "tests/trainer/arguments/runs.h"
#include "trainer/schedule/batch_size.h"
#include "trainer/schedule/learning_rate.h"
#include "trainer/schedule/loss_scaler.h"

namespace ferry::test {
namespace {

std::vector<std::string> lines_of(const std::string& name) {
  std::ifstream file(fixture("megatron_logs/" + name));
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (line.find("iteration ") != std::string::npos && line.find(" | ") != std::string::npos) {
      lines.push_back(line);
    }
  }
  return lines;
}

// As scripts of users take lines apart: name and value between bars.
TrainingLine parse_line(std::string text) {
  TrainingLine line;
  std::smatch match;
  if (std::regex_search(text, match, std::regex("^ \\[([-0-9:. ]+)\\]"))) {
    line.date_and_time = match[1];
    text = match.suffix();
  }
  std::regex_search(text, match, std::regex("iteration +([0-9]+)/ *([0-9]+) \\|"));
  line.iteration = std::stoll(match[1]);
  line.train_iterations = std::stoll(match[2]);
  text = match.suffix();
  while (std::regex_search(text, match, std::regex("^ ([^|]+?): +([^ |]+) \\|"))) {
    const std::string name = match[1];
    const double value = std::stod(match[2]);
    if (name == "consumed samples") {
      line.consumed_samples = static_cast<int64_t>(value);
    } else if (name == "elapsed time per iteration (ms)") {
      line.milliseconds = value;
    } else if (name == "learning rate") {
      line.learning_rate = value;
    } else if (name == "global batch size") {
      line.batch_size = static_cast<int64_t>(value);
    } else if (name == "loss scale") {
      line.loss_scale = value;
    } else if (name == "grad norm") {
      line.gradient_norm = value;
    } else if (name == "number of skipped iterations") {
      line.skipped = static_cast<int64_t>(value);
    } else if (name == "number of nan iterations") {
      line.nan = static_cast<int64_t>(value);
    } else {
      line.losses.emplace_back(name, value);
    }
    text = match.suffix();
  }
  EXPECT_TRUE(text.empty()) << text;
  return line;
}

std::string without_blank(std::string line) {
  return line.starts_with(" iteration") ? line.substr(1) : line;
}

TEST(TrainingLine, IsMegatronsLetterForLetter) {
  std::vector<std::string> lines = lines_of("lines.txt");
  for (const char* name : {"f16_llama.txt", "llama_tp2pp2_full.log", "deepseek_ep2.log"}) {
    for (const std::string& line : lines_of(name)) lines.push_back(line);
  }
  int count = 0;
  for (const std::string& line : lines) {
    if (line.find("consumed tokens") != std::string::npos) continue;  // another tree's fields
    // Some peers' logs begin without the date and the blank before the iteration.
    EXPECT_EQ(without_blank(training_line(parse_line(line))), without_blank(line));
    ++count;
  }
  EXPECT_GT(count, 70);
}

// A whole run in fp16: losses and overflows are the peer's, and all else follows from its
// arguments.
TEST(TrainingLine, FollowsARunFromItsFirstOverflows) {
  auto a = completed(common_words("f16") + "--bf16").arguments;
  a.bf16 = false;
  a.fp16 = true;
  a.train_iters = 60;
  const Schedule schedule = schedule_of(a);
  const BatchSizes sizes = batch_sizes(a);
  LossScaler scaler = loss_scaler(a);
  LossWindow window;
  int64_t consumed = 0, stepped = 0;
  for (const std::string& real : lines_of("f16_llama.txt")) {
    const TrainingLine peer = parse_line(real);
    const bool skipped = !peer.gradient_norm;
    TrainingLine line;
    const IterationBatch batch = batch_at(sizes, consumed);
    consumed += batch.running;
    update(scaler, skipped);
    if (!skipped) stepped += batch.running;
    const double loss = peer.losses.empty() ? NAN : peer.losses[0].second;
    add(window, {{"lm loss", skipped ? 5.0 : loss}}, skipped);
    line.date_and_time = peer.date_and_time;
    line.milliseconds = peer.milliseconds;
    line.iteration = peer.iteration;
    line.train_iterations = *a.train_iters;
    line.consumed_samples = consumed;
    line.learning_rate = static_cast<float>(learning_rate(schedule, stepped));
    line.batch_size = batch.global;
    line.losses = averages(window);
    line.loss_scale = scaler.scale;
    line.gradient_norm = peer.gradient_norm;
    line.skipped = window.skipped;
    line.nan = window.nan;
    EXPECT_EQ(training_line(line), real);
    if (peer.iteration > 1) start_again(window);
  }
  EXPECT_EQ(consumed, 320);
}

TEST(TrainingLine, HasWhatWasAskedFor) {
  TrainingLine line;
  line.date_and_time = "2026-01-02 03:04:05.000006";
  line.iteration = 25;
  line.train_iterations = 73242187;
  line.consumed_samples = 50;
  line.skipped_samples = 3;
  line.milliseconds = 87.04;
  line.teraflops = 123.45;
  line.learning_rate = 1.638e-8;
  line.batch_size = 2;
  line.losses = {{"lm loss", 10.86954}, {"z_loss", NAN}};
  line.loss_scale = 4294967296;
  line.gradient_norm = 0;
  line.zeros = 7;
  line.parameter_norm = 2.5;
  EXPECT_EQ(
      training_line(line),
      " [2026-01-02 03:04:05.000006] iteration       25/73242187 | consumed samples:           "
      "50 | skipped samples:            3 | elapsed time per iteration (ms): 87.0 | throughput "
      "per GPU (TFLOP/s/GPU): 123.5 | learning rate: 1.638000E-08 | global batch size:     2 | "
      "lm loss: 1.086954E+01 | loss scale: 4294967296.0 | grad norm: 0.000 | num zeros: 7.0 | "
      "params norm: 2.500 | number of skipped iterations:   0 | number of nan iterations:   0 |");
}

TEST(LossWindow, CountsSkippedAndNotFiniteIterations) {
  LossWindow window;
  add(window, {{"lm loss", 4}, {"z_loss", 1}}, false);
  add(window, {{"lm loss", 2}, {"z_loss", 2}}, false);
  add(window, {{"lm loss", INFINITY}}, true);
  add(window, {{"lm loss", 7}}, true);
  EXPECT_EQ(averages(window), (NamedLosses{{"lm loss", 3}, {"z_loss", 1.5}}));
  EXPECT_EQ(window.iterations(), 4);
  EXPECT_EQ(window.skipped, 2);
  EXPECT_EQ(window.nan, 1);
  add(window, {{"lm loss", NAN}}, false);  // as a loss that the run went on from
  EXPECT_EQ(window.nan, 1);
  start_again(window);
  EXPECT_EQ(averages(window), (NamedLosses{{"lm loss", 0}, {"z_loss", 0}}));
  EXPECT_EQ(window.iterations(), 0);
}

TEST(ValidationLines, AreFramed) {
  const std::string text =
      validation_lines("iteration 1000", {{"lm loss", 2.5}, {"mtp_1 loss", 30}});
  const std::string line =
      " validation loss at iteration 1000 | lm loss value: 2.500000E+00 | lm loss PPL: "
      "1.218249E+01 "
      "| mtp_1 loss value: 3.000000E+01 | mtp_1 loss PPL: 4.851652E+08 | ";
  const std::string frame(line.size() + 1, '-');
  EXPECT_EQ(text, frame + "\n" + line + "\n" + frame + "\n");
}

TEST(StartLines, AreMegatrons) {
  const auto a = completed(llama_words()).arguments;
  EXPECT_EQ(dtype_line(a), "using torch.bfloat16 for parameters ...\n");
  EXPECT_EQ(world_line(a),
            "using world size: 4, data-parallel size: 1, context-parallel size: 1, hierarchical "
            "context-parallel sizes: None, tensor-model-parallel size: 2, pipeline-model-parallel "
            "size: 2\n");
  EXPECT_EQ(vocabulary_line(50257, 50304),
            " > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)\n");
  EXPECT_EQ(
      parameters_line(1, 0, 15744) + parameters_line(1, 1, 15776),
      " > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank (1, 0, 0): "
      "15744\n > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank (1, "
      "0, 1): 15776\n");
  std::ifstream log(fixture("megatron_logs/llama_tp2pp2_full.log"));
  const std::string all((std::istreambuf_iterator<char>(log)), {});
  EXPECT_THAT(all, testing::HasSubstr(parameters_line(1, 0, 15744) + parameters_line(1, 1, 15776)));
  EXPECT_EQ(start_time_line(1.23456), "time to initialize megatron (seconds): 1.235\n");
  EXPECT_EQ(data_sizes_lines(10, 2, 1),
            " > datasets target sizes (minimum size):\n    train:      10\n    validation: 2\n    "
            "test:       1\n");
  EXPECT_EQ(micro_batches_line(4), "setting number of microbatches to constant 4\n");
  EXPECT_EQ(seed_line(7), "> setting random seeds to 7 ...\n");
  EXPECT_EQ(train_iterations_line(9), "setting training iterations to 9\n");
}

TEST(DataSizes, AreMegatrons) {
  auto a = default_arguments();
  a.train_samples = 146484375;
  a.train_iters = 508626;
  a.global_batch_size = a.eval_global_batch_size = 288;
  a.eval_iters = 40;
  a.eval_interval = 1000;
  const DataSizes sizes = data_sizes(a);
  EXPECT_EQ(sizes.train, 146484375);
  EXPECT_EQ(sizes.validation, 5863680);
  EXPECT_EQ(sizes.test, 11520);
  a.train_samples.reset();
  EXPECT_EQ(data_sizes(a).train, 508626 * 288);
  a.start_eval_at_iter = 508000;
  EXPECT_EQ(data_sizes(a).validation, 11520);
}

// Megatron-LM derives the iterations of a run by samples before it counts those of evaluations.
TEST(DataSizes, OfARunBySamplesHaveAllItsEvaluations) {
  auto a = default_arguments();
  a.train_samples = 80;
  a.micro_batch_size = 2;
  a.data_parallel_size = 1;
  a.global_batch_size = a.eval_global_batch_size = 4;
  a.eval_iters = 2;
  a.eval_interval = 4;
  EXPECT_EQ(data_sizes(a).validation, 6 * 2 * 4);
  a.rampup_batch_size = {2, 2, 24};
  EXPECT_EQ(data_sizes(a).validation, 7 * 2 * 4);  // 26 iterations
}

TEST(DataPhase, HasTheSamplesBetweenTransitions) {
  auto a = default_arguments();
  a.train_iters = 100;
  a.global_batch_size = 4;
  const auto phase = [&](int64_t iteration) {
    const DataPhase found = data_phase(a, iteration);
    return std::vector<int64_t>{found.first, found.samples};
  };
  EXPECT_THAT(phase(0), testing::ElementsAre(0, 400));
  EXPECT_THAT(phase(70), testing::ElementsAre(0, 400));
  a.phase_transition_iterations = "50,20";
  EXPECT_THAT(phase(0), testing::ElementsAre(0, 80));
  EXPECT_THAT(phase(19), testing::ElementsAre(0, 80));
  EXPECT_THAT(phase(20), testing::ElementsAre(20, 120));
  EXPECT_THAT(phase(50), testing::ElementsAre(50, 200));
  EXPECT_THAT(phase(99), testing::ElementsAre(50, 200));
  a.phase_transition_iterations = "20,500";
  EXPECT_THAT(phase(30), testing::ElementsAre(20, 320));
}

TEST(DateAndTime, HasMicroseconds) {
  const std::string text = date_and_time(1'700'000'000'000'042);
  EXPECT_THAT(text, testing::MatchesRegex("2023-11-1[45] [0-9:]+\\.000042"));
}

}  // namespace
}  // namespace ferry::test
