#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/staging.h"
#include "ops/output/paths.h"
#include "tools/data/commands.h"
#include "tools/data/mixture/choose_files.h"
#include "tools/data/mixture/token_folders.h"
#include "tools/data/mixture/weights.h"
#include "tools/data/token_files.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"
#include "trainer/data/samples/index_cache.h"

namespace ferry::tool {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kSummaryName = "dataset_mixture_summary.txt";
constexpr const char* kMixExamples = R"(Examples:
  ferry data mix --folders data/web data/books --weights 0.8 0.2 --output mixtures/first
  ferry train --data-path $(ferry data config mixtures/first) ...

Whole files, none twice: it ends when a folder has no file left. OUT holds links to them.
)";

struct MixFlags {
  std::vector<std::string> folders, weights;
  std::string output;
  bool overwrite = false, dry_run = false, json = false;
};

struct MixedFolder {
  std::string folder, name;           // as given; in OUT
  std::vector<std::string> prefixes;  // relative, in the order in which they are taken
  double target = 0;                  // share of the bytes
  size_t files = 0;
  uint64_t bytes = 0;
  int64_t tokens = 0;
};

struct Mixture {
  std::string output;
  std::vector<MixedFolder> folders;
  std::optional<size_t> exhausted;
  bool dry_run = false;

  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const MixedFolder& one : folders) sum += one.bytes;
    return sum;
  }
  double share(const MixedFolder& one) const {
    return bytes() == 0 ? 0 : static_cast<double>(one.bytes) / static_cast<double>(bytes());
  }
};

// Folders of one name get numbers: "web", "web_2".
std::string free_name(const std::string& folder, std::set<std::string>& taken) {
  const std::string name = split_path(plain_folder(folder)).name;
  std::string unique = name;
  for (int number = 2; !taken.insert(unique).second; ++number) {
    unique = fmt::format("{}_{}", name, number);
  }
  return unique;
}

Mixture plan_mixture(const MixFlags& flags) {
  Mixture mixture{.output = plain_folder(flags.output),
                  .folders = {},
                  .exhausted = {},
                  .dry_run = flags.dry_run};
  const std::vector<double> shares =
      shares_of(parse_weights(flags.weights, flags.folders.size(), "--folders"));
  std::set<std::string> names{kSummaryName};
  std::vector<std::vector<uint64_t>> bytes;
  for (size_t k = 0; k < flags.folders.size(); ++k) {
    if (is_same_or_inside(flags.folders[k], flags.output)) {
      fail(ErrorKind::invalid,
           "the folder {} is in {}, which is to be written; choose another --output",
           flags.folders[k], flags.output);
    }
    MixedFolder one;
    one.folder = plain_folder(flags.folders[k]);
    one.name = free_name(flags.folders[k], names);
    one.target = shares[k];
    for (const std::string& prefix : pairs_below(one.folder, FolderLinks::follow)) {
      one.prefixes.push_back(prefix + ".bin");
    }
    shuffle_files(one.prefixes);
    bytes.emplace_back();
    for (std::string& file : one.prefixes) {
      bytes.back().push_back(posix_file_system()->status(join(one.folder, file)).bytes);
      file.resize(file.size() - 4);
    }
    mixture.folders.push_back(std::move(one));
  }
  const ChosenFiles chosen = choose_files(bytes, shares);
  mixture.exhausted = chosen.exhausted;
  for (size_t k = 0; k < mixture.folders.size(); ++k) {
    MixedFolder& one = mixture.folders[k];
    one.files = chosen.counts[k];
    one.bytes = chosen.bytes[k];
    one.prefixes.resize(one.files);
    for (const std::string& prefix : one.prefixes) {
      one.tokens += count_all_tokens(*open_tokens(join(one.folder, prefix)));
    }
  }
  return mixture;
}

// The line that create_data_mixture.py writes.
std::string summary_line(const Mixture& mixture) {
  size_t files = 0;
  std::vector<size_t> counts;
  std::vector<std::pair<std::string, double>> shares;
  const auto rounded = [](double value, double digits) {
    return std::nearbyint(value * digits) / digits;
  };
  for (const MixedFolder& one : mixture.folders) {
    files += one.files;
    counts.push_back(one.files);
    shares.emplace_back(join(mixture.output, one.name), rounded(mixture.share(one), 1e4));
  }
  std::sort(shares.begin(), shares.end());
  std::string ratios;
  for (const auto& [name, share] : shares) {
    ratios += fmt::format("{}'{}': {}", ratios.empty() ? "" : ", ", name, number(share));
  }
  const auto bytes = static_cast<double>(mixture.bytes());
  return fmt::format(
      "Dataset mixture created in {} | {} files ([{}]) | {} TB | {} Billion Tokens (x2 if Vocab < "
      "65536) | Resulting mixture is {{{}}}",
      mixture.output, files, fmt::join(counts, ", "), number(rounded(bytes / 1e12, 100)),
      number(rounded(bytes / 4e9, 100)), ratios);
}

void write_links(const Mixture& mixture, bool overwrite) {
  const auto file_system = posix_file_system();
  StagedFolder staged(file_system, mixture.output, overwrite);
  try {
    for (const MixedFolder& one : mixture.folders) {
      for (const std::string& prefix : one.prefixes) {
        const fs::path link = fs::path(staged.path()) / one.name / prefix;
        fs::create_directories(link.parent_path());
        for (const char* ending : {".bin", ".idx"}) {
          fs::create_symlink(join(one.folder, prefix) + ending, link.string() + ending);
        }
      }
    }
  } catch (const fs::filesystem_error& problem) {
    fail(ErrorKind::io, "cannot make the links of {}: {}", mixture.output, problem.what());
  }
  staged.write_file(kSummaryName, summary_line(mixture));
  staged.commit();
}

std::string to_text(const Mixture& mixture) {
  std::vector<std::vector<std::string>> rows{
      {"folder", "files", "bytes", "tokens", "wanted", "reached"}};
  for (const MixedFolder& one : mixture.folders) {
    rows.push_back({printable(one.folder), grouped(static_cast<int64_t>(one.files)),
                    human_bytes(one.bytes), grouped(one.tokens), fmt::format("{:.4f}", one.target),
                    fmt::format("{:.4f}", mixture.share(one))});
  }
  std::string text =
      fmt::format("{} {}\n", mixture.dry_run ? "would write" : "wrote", printable(mixture.output)) +
      table(rows, {false, true, true, true, true, true}, "  ");
  if (mixture.exhausted) {
    text += fmt::format("  {} has no file left\n",
                        printable(mixture.folders[*mixture.exhausted].folder));
  }
  return text;
}

json to_json(const Mixture& mixture) {
  json folders = json::array();
  for (const MixedFolder& one : mixture.folders) {
    folders.push_back({{"folder", one.folder},
                       {"name", one.name},
                       {"files", one.files},
                       {"bytes", one.bytes},
                       {"tokens", one.tokens},
                       {"wanted", one.target},
                       {"reached", mixture.share(one)},
                       {"prefixes", one.prefixes}});
  }
  return {{"output", mixture.output},
          {"folders", folders},
          {"bytes", mixture.bytes()},
          {"exhausted", mixture.exhausted ? json(*mixture.exhausted) : json(nullptr)},
          {"dry_run", mixture.dry_run}};
}

void mix_data(const MixFlags& flags) {
  const std::string output = plain_folder(flags.output);
  StagedFolder::check_target(*posix_file_system(), output, flags.overwrite);
  const auto kind = [&](const std::string& path) { return posix_file_system()->status(path).kind; };
  if (kind(output) != PathKind::missing && kind(join(output, kSummaryName)) != PathKind::file) {
    fail(ErrorKind::invalid,
         "{} is not a mixture (it has no {}), and is not replaced; choose another "
         "--output",
         output, kSummaryName);
  }
  const Mixture mixture = plan_mixture(flags);
  if (!flags.dry_run) write_links(mixture, flags.overwrite);
  const std::string text = flags.json ? json_text(to_json(mixture)) : to_text(mixture);
  if (flags.dry_run) return print(text);
  print_done(text, mixture.output + " is complete");
}

}  // namespace

void add_mix_data(Command& data) {
  auto flags = std::make_shared<MixFlags>();
  Command command =
      data.add_command("mix", "Mix token files of folders by weight, as links, each at most once");
  command.add_option("--folders", flags->folders, "Folders of token files, at any depth")
      .required()
      .type_name("DIR");
  command
      .add_option("--weights", flags->weights,
                  "Each folder's share of the bytes; they may add up to anything")
      .required()
      .type_name("W");
  command.add_option("--output", flags->output, "The folder to write").required().type_name("OUT");
  command.add_flag("--overwrite", flags->overwrite, "Replace an existing folder");
  command.add_flag("--dry-run", flags->dry_run, "Show what would be chosen, and write nothing");
  add_json_option(command, flags->json);
  command.footer(kMixExamples);
  command.action([flags] { mix_data(*flags); });
}

}  // namespace ferry::tool
