#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/store/run_folder.h"
#include "tools/commands.h"
#include "tools/diff/diff_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"
#include "tools/terminal/validators.h"

namespace ferry::tool {
namespace {

struct DiffFlags {
  DiffOptions options;
  std::string iteration;
  bool quiet = false, json = false, progress = false;
};

constexpr const char* kDiffExamples = R"(Examples:
  ferry diff runs/big runs/small                 any formats and layouts
  ferry diff runs/a runs/a --iteration 100,200 --only '*final*'
  ferry diff runs/bf16 runs/fp32 --ignore-dtype --relative-tolerance 0.004
  ferry diff runs/llama llama-hf                 names and shapes through the model's family
  ferry diff -q a b && echo the same tensors

Exits with 0 when all tensors are equal, with 1 when some differ or are only on one side, and with
the code of the error otherwise. Differences in arguments and other objects are reported and do not count.
)";

const std::map<std::string, DiffOrder> kOrders = {{"difference", DiffOrder::difference},
                                                  {"size", DiffOrder::size}};

// "100,200": of A, of B. "100": of each that is a run folder.
void set_iterations(const std::string& text, DiffOptions& options) {
  const size_t comma = text.find(',');
  if (comma != std::string::npos) {
    options.open_a.iteration = text.substr(0, comma);
    options.open_b.iteration = text.substr(comma + 1);
    return;
  }
  const auto is_run = [files = posix_file_system()](const std::string& path) {
    return files->status(path).kind == PathKind::folder && is_run_folder(*files, path);
  };
  // Where neither is, opening A says so.
  if (is_run(options.a) || !is_run(options.b)) options.open_a.iteration = text;
  if (is_run(options.b)) options.open_b.iteration = text;
}

DiffReport run_diff(const DiffFlags& flags, double* seconds) {
  DiffOptions options = flags.options;
  set_iterations(flags.iteration, options);
  options.objects = options.only.empty() && options.drop.empty() && !flags.quiet;
  const InterruptScope interrupt;
  options.engine.cancel = interrupt.flag();
  ProgressLine line("comparing", flags.progress);
  options.engine.progress = [&](const Progress& progress) { line.show(progress); };
  DiffReport report = diff(options);
  *seconds = line.seconds();
  return report;
}

int run(const DiffFlags& flags) {
  double seconds = 0;
  const DiffReport report = run_diff(flags, &seconds);
  if (!flags.quiet) {
    print(flags.json ? json_text(to_json(report, seconds)) : to_text(report, seconds));
  }
  return report.equal() ? kExitOk : kExitDifferent;
}

void add_options(Command& command, DiffFlags& flags) {
  DiffOptions& options = flags.options;
  command.add_option("A", options.a, "A checkpoint, as for inspect").required().type_name("");
  command.add_option("B", options.b, "Another one").required().type_name("");
  command
      .add_option("--iteration", flags.iteration,
                  "Iteration of run folders, or 'release'; N,M: N of A, M of B")
      .type_name("N[,M]")
      .check(not_empty("an empty text names no iteration; omit the option to use the tracker's"));
  command
      .add_option("--tolerance", options.tolerance.absolute,
                  "Largest |a - b| that counts as equal (default: bitwise equality)")
      .type_name("X")
      .check(not_negative());
  command
      .add_option("--relative-tolerance", options.tolerance.relative,
                  "The same, relative to the larger of |a| and |b|; meeting either is enough")
      .type_name("X")
      .check(not_negative());
  command.add_flag("--ignore-dtype", options.ignore_dtype,
                   "Compare values only, whatever the dtypes");
  command.add_option("--only", options.only, "Compare only tensors that match").type_name("GLOB");
  command.add_option("--drop", options.drop, "Do not compare tensors that match").type_name("GLOB");
  command
      .add_choice("--sort", options.order, kOrders,
                  "difference: largest difference first; size: largest tensors first")
      .type_name("ORDER");
  command.add_flag("-q,--quiet", flags.quiet, "Print nothing; the exit code is the answer");
  add_json_option(command, flags.json);
  add_progress_option(command, flags.progress);
  add_engine_options(command, options.engine);
}

}  // namespace

void add_diff(Command& program, int& exit_code) {
  auto flags = std::make_shared<DiffFlags>();
  Command command = program.add_command("diff", "Compare two checkpoints, tensor by tensor");
  add_options(command, *flags);
  command.footer(kDiffExamples);
  command.action([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace ferry::tool
