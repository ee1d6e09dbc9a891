#include "tools/runs/export.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/publish.h"
#include "ckpt/io/staging/staging.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "trainer/log/log_files.h"

namespace ferry::tool {
namespace {

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

void check_new(const FileSystem& files, const std::string& path) {
  if (path.empty()) fail(ErrorKind::invalid, "-o needs a name");
  if (files.status(path).kind == PathKind::missing) return;
  fail(ErrorKind::invalid, "{} exists; choose another name", printable(path));
}

// What another program wrote into a folder that is to be committed.
void sync_files(const FileSystem& files, const std::string& folder) {
  for (const std::string& name : files.list(folder)) {
    const std::string path = join(folder, name);
    const PathStatus status = files.status(path);
    if (status.link) continue;
    if (status.kind == PathKind::folder) sync_files(files, path);
    if (status.kind == PathKind::file) files.open_to_write(path)->sync();
  }
}

// Reads the CSV and logs every line with W&B's package, which writes its own files.
constexpr const char* kWandbScript = R"(
import csv, os, sys, wandb
folder, name, table = sys.argv[1:4]
os.makedirs(folder, exist_ok=True)
# Its summary names a folder that is moved afterwards.
run = wandb.init(mode="offline", settings=wandb.Settings(silent=True), dir=folder, name=name, project=os.environ.get("WANDB_PROJECT"))
with open(table, newline="") as lines:
    for row in csv.DictReader(lines):
        step = int(row.pop("iteration"))
        run.log({k: float(v) for k, v in row.items() if v and float(v) == float(v)}, step=step)
run.finish()
)";

int shell(const std::string& command) {
  const int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

std::string metrics_csv(const Metrics::Table& table) {
  const std::vector<std::string> names = metric_names(table);
  std::string text = "iteration";
  for (const std::string& name : names) text += "," + csv_field(name);
  text += "\n";
  for (const auto& [iteration, values] : table) {
    text += fmt::format("{}", iteration);
    for (const std::string& name : names) {
      const auto found = values.find(name);
      text += found == values.end() ? "," : fmt::format(",{}", found->second);
    }
    text += "\n";
  }
  return text;
}

void export_csv(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                const std::string& file) {
  const std::string text = metrics_csv(table);
  if (file == "-") return print(text);
  check_new(*files, file);
  const WriteLock lock(files, file);
  check_new(*files, file);  // another one may have been faster
  publish_file(*files, lock, file, text, Existing::refuse);
}

void export_tensorboard(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                        const std::string& folder) {
  check_new(*files, folder);
  StagedFolder staged(files, folder, false);
  EventFile events(*files, staged.path());
  for (const auto& [iteration, values] : table) {
    for (const auto& [name, value] : values) events.add(name, value, iteration);
  }
  events.sync();
  staged.commit();
}

void export_wandb(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                  const std::string& folder, const std::string& name) {
  if (shell("python3 -c 'import wandb' >/dev/null 2>&1") != 0) {
    fail(ErrorKind::unsupported,
         "--to wandb: Python has no package wandb here, which writes Weights & Biases' files: "
         "install it, or export --to csv or --to tensorboard");
  }
  check_new(*files, folder);
  StagedFolder staged(files, folder, false);
  const std::string csv = join(staged.path(), ".ferry-metrics.csv");  // removed after a kill, too
  write_file(*files, csv, metrics_csv(table));
  const int code = shell(fmt::format("python3 -c {} {} {} {} >&2", shell_word(kWandbScript),
                                     shell_word(staged.path()), shell_word(name), shell_word(csv)));
  files->remove_all(csv);
  if (code != 0) fail(ErrorKind::io, "--to wandb: its package ended with exit code {}", code);
  sync_files(*files, staged.path());
  staged.commit();
}

}  // namespace ferry::tool
