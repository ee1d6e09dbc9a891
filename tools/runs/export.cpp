#include "tools/runs/export.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <functional>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/claim.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "trainer/loop/event_file.h"

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

// It appears under its name when it is complete.
void write_aside(const std::shared_ptr<const FileSystem>& files, const std::string& path,
                 const std::function<void(const Claim& claim)>& write) {
  check_new(*files, path);
  const Claim claim(files, path);
  check_new(*files, path);  // another one may have been faster
  try {
    write(claim);
    claim.check();
    files->rename(claim.partial_path(), path);
  } catch (...) {
    claim.drop_partial();
    throw;
  }
}

// Reads the CSV and tells W&B's package of every line, which writes its own files.
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
  write_aside(files, file,
              [&](const Claim& claim) { write_file(*files, claim.partial_path(), text); });
}

void export_tensorboard(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                        const std::string& folder) {
  write_aside(files, folder, [&](const Claim& claim) {
    EventFile events(*files, claim.partial_path());
    for (const auto& [iteration, values] : table) {
      for (const auto& [name, value] : values) events.add(name, value, iteration);
    }
    events.sync();
  });
}

void export_wandb(const std::shared_ptr<const FileSystem>& files, const Metrics::Table& table,
                  const std::string& folder, const std::string& name) {
  if (shell("python3 -c 'import wandb' >/dev/null 2>&1") != 0) {
    fail(ErrorKind::unsupported,
         "--to wandb: Python has no package wandb here, which writes Weights & Biases' files: "
         "install it, or export --to csv or --to tensorboard");
  }
  write_aside(files, folder, [&](const Claim& claim) {
    const std::string csv = claim.trash_path();  // removed after a kill
    write_file(*files, csv, metrics_csv(table));
    const int code =
        shell(fmt::format("python3 -c {} {} {} {} >&2", shell_word(kWandbScript),
                          shell_word(claim.partial_path()), shell_word(name), shell_word(csv)));
    files->remove_all(csv);
    if (code != 0) fail(ErrorKind::io, "--to wandb: its package ended with exit code {}", code);
  });
}

}  // namespace ferry::tool
