#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "ckpt/base/error.h"
#include "estimate/make_estimate.h"
#include "tools/commands.h"
#include "tools/estimate/estimate_output.h"
#include "tools/estimate/launch_source.h"
#include "tools/report/page_file.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr int64_t kMostGpus = 1 << 20;
constexpr int64_t kMostIterations = 1'000'000'000;

struct EstimateFlags {
  std::string what;
  std::vector<std::string> arguments;  // after --
  std::vector<std::string> at;
  EstimateOptions options;
  int64_t layouts = 10;
  PageFile page;
  bool json = false;
};

constexpr const char* kEstimateExamples = R"(Examples:
  ferry estimate llama/config.json
  ferry estimate runs/llama --bandwidth 10GB
  ferry estimate llama/config.json --gpus 64 --gpu-memory 80GB -o plan.html
  ferry estimate gpt.args --at 25 1000 -- --micro-batch-size 2
  ferry estimate -- --num-layers 24 --hidden-size 2304 --num-attention-heads 24 --seq-length 2048 --vocab-size 51200

Megatron-LM's arguments after -- override those of WHAT.
)";

void run(EstimateFlags flags, bool has_output) {
  if (flags.what.empty() && flags.arguments.empty()) {
    fail(
        ErrorKind::invalid,
        "WHAT is missing: a checkpoint, a config.json, a file of arguments, or arguments after --");
  }
  if (flags.json && has_output) {
    fail(ErrorKind::invalid, "--json prints to standard output, and takes no -o");
  }
  EstimateOptions& options = flags.options;
  for (const std::string& word : flags.at) options.at.push_back(std::stoll(word));
  const auto files = posix_file_system();
  if (has_output) check_page_file(*files, flags.page);
  EstimateSource source = is_launch(flags.what, *files)
                              ? read_launch_source(flags.what, flags.arguments, *files)
                              : read_estimate_source(files, flags.what, flags.arguments);
  const Estimate estimate = make_estimate(std::move(source), options);
  const EstimateOutput output{&estimate, options, static_cast<size_t>(flags.layouts)};
  if (flags.json) return print(json_text(estimate_json(output)));
  if (has_output) {
    return write_page_file(files, flags.page,
                           estimate_page(output, flags.what.empty() ? "Estimate" : flags.what));
  }
  print(estimate_text(output));
}

}  // namespace

void add_estimate(Command& program, std::vector<std::string> arguments) {
  auto flags = std::make_shared<EstimateFlags>();
  flags->arguments = std::move(arguments);
  EstimateOptions& options = flags->options;
  Command command = program.add_command(
      "estimate", "Estimate what training needs: parameters, memory, FLOPs, checkpoint sizes");
  command
      .add_option("WHAT", flags->what,
                  "Checkpoint, config.json, argument file or preset of ferry launch; if omitted, "
                  "give arguments after --")
      .type_name("");
  command
      .add_option("--gpus", options.gpus,
                  "Number of GPUs, one rank each (default: from the arguments)")
      .type_name("N")
      .check(whole_number(1, kMostGpus));
  command
      .add_option(
          "--gpu-memory",
          [flags](const std::string& text) {
            flags->options.gpu_memory_bytes = parse_size(text, "--gpu-memory");
          },
          "With --gpus: find layouts that fit in this much GPU memory: 80GB, 141GB")
      .type_name("SIZE");
  command
      .add_option("--gpus-per-node", options.gpus_per_node,
                  "GPUs per node; tensor parallelism stays within a node")
      .type_name("N")
      .check(whole_number(1, kMostGpus))
      .default_text("8");
  command.add_option("--gpu", options.gpu, "GPU whose measured speed to use: h100, h200, a100")
      .type_name("NAME");
  command
      .add_option(
          "--bandwidth",
          [flags](const std::string& text) {
            flags->options.bandwidth_bytes = parse_size(text, "--bandwidth");
            if (flags->options.bandwidth_bytes == 0) {
              fail(ErrorKind::invalid, "--bandwidth: 0 bytes a second save nothing");
            }
          },
          "Bytes per second of the storage, to estimate save and load times")
      .type_name("SIZE");
  command.add_option("--at", flags->at, "Show the learning rate after these iterations")
      .type_name("ITERATION")
      .check(whole_number(0, kMostIterations));
  command.add_option("--layouts", flags->layouts, "Number of layouts to show")
      .type_name("N")
      .check(whole_number(1, 1000))
      .default_text("10");
  add_json_option(command, flags->json);
  const Option output =
      command
          .add_option("-o,--output", flags->page.path, "Write an HTML page; - for standard output")
          .type_name("FILE");
  command.add_flag("--overwrite", flags->page.overwrite, "Replace FILE");
  command.footer(kEstimateExamples);
  command.action([flags, output] { run(*flags, output.given()); });
}

}  // namespace ferry::tool
