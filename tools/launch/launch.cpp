#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>

#include "ckpt/base/error.h"
#include "ckpt/group/mpi/launcher.h"
#include "ckpt/io/file_system.h"
#include "ops/output/paths.h"
#include "tools/commands.h"
#include "tools/launch/check.h"
#include "tools/launch/configuration.h"
#include "tools/launch/kubernetes.h"
#include "tools/launch/presets.h"
#include "tools/launch/scripts.h"
#include "tools/launch/training_words.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kMostConfigurationBytes = 1 << 20;

struct LaunchFlags {
  std::string file, preset, output;
  std::vector<std::string> settings;
  bool print = false, submit = false, words = false;
};

constexpr const char* kLaunchExamples = R"(Examples:
  ferry launch slurm run.yaml --submit
  ferry launch slurm --preset swiss-ai-8b --set folder=/scratch/llama --set slurm.account=a1 --print
  ferry launch kubernetes run.yaml | kubectl apply -f -
  ferry launch local --preset one-machine --set folder=runs/small --submit
  ferry launch presets                       their names; with a name, the preset itself
)";

LaunchConfiguration read_configuration(const LaunchFlags& flags) {
  if (flags.file.empty() && flags.preset.empty()) {
    // --set takes all words after it, a FILE too.
    const bool is_after_set = std::ranges::any_of(flags.settings, [](const std::string& word) {
      return word.find('=') == std::string::npos;
    });
    fail(ErrorKind::invalid, "which configuration? Give a FILE{}, or --preset NAME",
         is_after_set ? " before --set" : "");
  }
  ConfigurationReader reader;
  if (!flags.preset.empty()) reader.take_preset(flags.preset);
  if (!flags.file.empty()) {
    reader.take(read_file(*posix_file_system(), flags.file, kMostConfigurationBytes), flags.file);
  }
  for (const std::string& word : flags.settings) reader.set(word);
  return reader.finish();
}

// A launch that was checked, and what it consists of.
struct PreparedLaunch {
  LaunchConfiguration configuration;
  std::vector<std::string> words;
  LaunchCheck check;
};

// The path of this program; its bare name where the system does not know it.
std::string own_program() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "ferry" : path.string();
}

PreparedLaunch prepare_launch(const LaunchFlags& flags, const std::string& program,
                              LaunchPlace place) {
  PreparedLaunch launch;
  launch.configuration = read_configuration(flags);
  if (launch.configuration.ferry.empty()) launch.configuration.ferry = program;
  launch.words = training_words(launch.configuration);
  launch.check = check_launch(launch.configuration, launch.words, place);
  for (const std::string& note : launch.check.notes) print_aside(note + "\n");
  return launch;
}

void print_files(const std::vector<LaunchFile>& files) {
  std::string text;
  for (const LaunchFile& file : files) {
    text += fmt::format("{}==> {} <==\n{}", text.empty() ? "" : "\n", file.name, file.text);
  }
  print(text);
}

void print_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += shell_word(word) + "\n";
  print(text);
}

// Whether a program can be started: a path, or a name in $PATH.
bool has_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) == 0;
  const char* const path = process_environment()("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access(join(folder.empty() ? "." : folder, name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

void require_program(const std::string& name, const std::string& what_to_do) {
  if (has_program(name)) return;
  fail(ErrorKind::not_found, "--submit: there is no {} on this machine; {}", printable(name),
       what_to_do);
}

// What the job would end with at once on this machine.
void require_local_programs(const LaunchConfiguration& c) {
  const bool is_ferry = c.program == "ferry";
  if (!c.prefix.empty()) require_program(c.prefix.front(), "program.prefix names it");
  if (c.container == "none") {
    require_program(is_ferry ? c.ferry : c.python,
                    is_ferry ? "program.ferry names it" : "program.python names it");
    const std::string script = join(c.code, c.script);
    if (!is_ferry && ::access(script.c_str(), R_OK) != 0) {
      fail(ErrorKind::not_found,
           "--submit: there is no {}; program.code and program.script name it", printable(script));
    }
  } else {
    require_program(c.container, "container.kind names it");
  }
}

// This process becomes the other program, which has its terminal and signals then.
[[noreturn]] void become(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  fail(ErrorKind::io, "{} cannot be started: {}", words[0], std::strerror(errno));
}

void launch_scripts(const LaunchFlags& flags, bool is_slurm) {
  // What is written now may be started later, when its files are there.
  const bool starts_here = !is_slurm && flags.submit;
  const PreparedLaunch launch = prepare_launch(
      flags, own_program(), starts_here ? LaunchPlace::here_and_now : LaunchPlace::elsewhere);
  if (flags.words) return print_words(launch.words);
  const LaunchConfiguration& c = launch.configuration;
  if (const std::string note = is_slurm ? slurm_note(c) : ""; !note.empty()) {
    print_aside(note + "\n");
  }
  const std::string folder = flags.output.empty() ? c.folder + "/launch" : absolute(flags.output);
  const std::vector<LaunchFile> files =
      is_slurm ? slurm_files(c, launch.words, launch.check.last_iteration, folder)
               : local_files(c, launch.words, launch.check.last_iteration);
  if (flags.print) return print_files(files);
  if (flags.submit && is_slurm) {
    require_program("sbatch",
                    "leave --submit out, and start submit.sh where Slurm's commands are; or train "
                    "here: ferry launch local");
  } else if (flags.submit) {
    require_local_programs(c);
  }
  write_launch_files(posix_file_system(), folder, files);
  const std::string start = folder + (is_slurm ? "/submit.sh" : "/run.sh");
  if (flags.submit) become({"bash", start});
  print_done(fmt::format("{}wrote {}\nstart it: bash {}\n", launch.check.plan, printable(folder),
                         shell_word(start)),
             folder + " is complete");
}

void launch_kubernetes(const LaunchFlags& flags) {
  const PreparedLaunch launch = prepare_launch(flags, "ferry", LaunchPlace::elsewhere);
  if (flags.words) return print_words(launch.words);
  const std::string manifest =
      kubernetes_manifest(launch.configuration, launch.words, launch.check.last_iteration);
  const bool is_printed = flags.output.empty() || flags.output == "-";
  if (flags.submit && is_printed) {
    fail(ErrorKind::invalid, "--submit: -o says where the manifest is kept that kubectl applies");
  }
  if (flags.print || is_printed) return print(manifest);
  if (flags.submit) {
    require_program("kubectl", "leave --submit out, and apply the manifest where kubectl is");
  }
  const SplitPath path = split_path(absolute(flags.output));
  write_launch_files(posix_file_system(), path.parent, {{path.name, manifest}});
  if (flags.submit) become({"kubectl", "apply", "-f", join(path.parent, path.name)});
  print_done(fmt::format("{}wrote {}\nstart it: kubectl apply -f {}\n", launch.check.plan,
                         printable(flags.output), shell_word(flags.output)),
             flags.output + " is complete");
}

void print_presets(const std::string& name) {
  if (!name.empty()) return print(preset(name));
  std::string text;
  for (const std::string& one : preset_names()) {
    // The first line of each says what it is.
    const std::string_view yaml = preset(one);
    const std::string_view first = yaml.substr(0, yaml.find('\n'));
    text += fmt::format("{:<22}{}\n", one, first.substr(std::min<size_t>(2, first.size())));
  }
  print(text);
}

void add_kind(Command& launch, const std::string& name, const std::string& help,
              const std::string& output, void (*act)(const LaunchFlags&)) {
  const auto flags = std::make_shared<LaunchFlags>();
  Command command = launch.add_command(name, help);
  command.add_option("FILE", flags->file, "The configuration, a YAML file").type_name("");
  command.add_option("--preset", flags->preset, "A named configuration to start from")
      .type_name("NAME");
  command.add_option("--set", flags->settings, "Keys to override those of FILE")
      .type_name("KEY=VALUE");
  command.add_option("-o,--output", flags->output, output).type_name("PATH");
  command.add_flag("--print", flags->print, "Print everything, and write nothing");
  command.add_flag("--print-words", flags->words,
                   "Print the training command's arguments, one per line, and write nothing");
  command.add_flag("--submit", flags->submit, "Start it");
  command.footer("Keys:\n" + configuration_help() + "\n" + kLaunchExamples);
  command.action([flags, act] { act(*flags); });
}

}  // namespace

void add_launch(Command& program) {
  Command launch = program.add_command(
      "launch", "Write and start training jobs, on a cluster or on this machine");
  launch.require_command();
  add_kind(launch, "slurm", "Write scripts for Slurm",
           "Folder to write the scripts to (default: FOLDER/launch)",
           [](const LaunchFlags& flags) { launch_scripts(flags, true); });
  add_kind(launch, "local", "Write a script for this machine",
           "Folder to write the scripts to (default: FOLDER/launch)",
           [](const LaunchFlags& flags) { launch_scripts(flags, false); });
  add_kind(launch, "kubernetes", "Write a manifest for Kubernetes",
           "Manifest file to write (default: standard output)", launch_kubernetes);
  const auto name = std::make_shared<std::string>();
  Command presets = launch.add_command("presets", "List presets, or print one");
  presets.add_option("NAME", *name, "Preset to print").type_name("");
  presets.action([name] { print_presets(*name); });
  presets.footer("Examples:\n  ferry launch presets one-machine > run.yaml\n");
  launch.footer(kLaunchExamples);
}

}  // namespace ferry::tool
