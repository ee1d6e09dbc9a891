#include "tools/data/mixture/dumps.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/staging.h"
#include "tools/data/commands.h"
#include "tools/data/mixture/token_folders.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr uint64_t kDumpBytes = 150'000'000'000;
constexpr double kSecondsPerGigabyte = 20;  // of the clusters that the original work was made for
constexpr const char* kDumpsExamples = R"(Examples:
  ferry data dumps raw/fineweb --output work/fineweb --filter-in train --filter-out _removed
  ferry data tokenize --input-list work/fineweb/dumps/paths_file_0.txt \
      --input-folder work/fineweb/raw-dataset-link ...
)";

struct DumpsFlags {
  std::string folder, output;
  std::vector<std::string> filter_in, filter_out;
  std::vector<std::string> endings = {".jsonl",  ".jsonl.gz", ".jsonl.zst", ".jsonl.xz", ".parquet",
                                      ".json",   ".json.gz",  ".json.zst",  ".json.xz",  ".txt",
                                      ".txt.gz", ".txt.zst",  ".txt.xz"};
  std::optional<int64_t> dumps;
  bool overwrite = false, dry_run = false, json = false;
};

struct Dump {
  std::vector<std::string> files;
  uint64_t bytes = 0;
};

std::vector<Dump> plan_dumps(const DumpsFlags& flags) {
  std::vector<std::string> files = files_below(flags.folder, FolderLinks::follow);
  std::erase_if(files, [&](const std::string& file) {
    return std::none_of(flags.endings.begin(), flags.endings.end(),
                        [&](const std::string& ending) { return has_ending(file, ending); });
  });
  files = filter_paths(files, flags.filter_in, flags.filter_out);
  if (files.empty()) {
    fail(ErrorKind::not_found, "no file in {} has one of the endings {} and passes the filters",
         flags.folder, fmt::join(flags.endings, ", "));
  }
  std::vector<uint64_t> bytes;
  for (const std::string& file : files) {
    bytes.push_back(posix_file_system()->status(join(flags.folder, file)).bytes);
  }
  const uint64_t total = std::accumulate(bytes.begin(), bytes.end(), uint64_t{0});
  std::vector<Dump> dumps;
  for (const auto& numbers : balance_dumps(bytes, dump_count(total, files.size(), flags.dumps))) {
    dumps.emplace_back();
    for (const size_t number : numbers) {
      dumps.back().files.push_back(files[number]);
      dumps.back().bytes += bytes[number];
    }
  }
  return dumps;
}

void write_dumps(const DumpsFlags& flags, const std::vector<Dump>& dumps) {
  const auto file_system = posix_file_system();
  if (file_system->status(flags.output).kind == PathKind::missing) {
    file_system->create_folder(flags.output);
  }
  StagedFolder staged(file_system, join(flags.output, "dumps"), flags.overwrite);
  for (size_t i = 0; i < dumps.size(); ++i) {
    std::string text;
    for (const std::string& file : dumps[i].files) text += file + "\n";
    staged.write_file(fmt::format("paths_file_{}.txt", i), text);
  }
  staged.commit();
  std::error_code error;
  const std::string link = join(flags.output, "raw-dataset-link");
  if (std::filesystem::is_symlink(link, error)) return;
  std::filesystem::create_symlink(plain_folder(flags.folder), link, error);
  if (error) {
    fail(ErrorKind::io, "cannot make the link {}: {}; the lists are written", link,
         error.message());
  }
}

std::string to_text(const std::vector<Dump>& dumps, bool dry_run) {
  size_t files = 0;
  uint64_t bytes = 0;
  for (const Dump& dump : dumps) files += dump.files.size(), bytes += dump.bytes;
  std::string text =
      fmt::format("{} {} dump{} of {} files, {}\n", dry_run ? "would make" : "made", dumps.size(),
                  dumps.size() == 1 ? "" : "s", files, human_bytes(bytes));
  for (size_t i = 0; i < dumps.size(); ++i) {
    const double gigabytes = static_cast<double>(dumps[i].bytes) / 1e9;
    text += fmt::format(
        "[ Dump {} | {:.2f} GB | {} Files | ~{:.2f} hours to tokenize (@20 s per GB)]\n", i,
        gigabytes, dumps[i].files.size(), kSecondsPerGigabyte * gigabytes / 3600);
  }
  return text;
}

json to_json(const std::vector<Dump>& dumps, const DumpsFlags& flags) {
  json list = json::array();
  for (const Dump& dump : dumps) list.push_back({{"files", dump.files}, {"bytes", dump.bytes}});
  return {{"folder", flags.folder},
          {"output", flags.output},
          {"dumps", list},
          {"dry_run", flags.dry_run}};
}

void prepare_dumps(const DumpsFlags& flags) {
  const std::vector<Dump> dumps = plan_dumps(flags);
  if (!flags.dry_run) write_dumps(flags, dumps);
  const std::string text =
      flags.json ? json_text(to_json(dumps, flags)) : to_text(dumps, flags.dry_run);
  if (flags.dry_run) return print(text);
  print_done(text, join(flags.output, "dumps") + " is complete");
}

}  // namespace

std::vector<std::string> filter_paths(const std::vector<std::string>& paths,
                                      const std::vector<std::string>& in,
                                      const std::vector<std::string>& out) {
  std::vector<std::string> kept;
  std::vector<bool> taken(paths.size(), in.empty());
  if (in.empty()) kept = paths;
  for (const std::string& word : in) {
    for (size_t i = 0; i < paths.size(); ++i) {
      if (taken[i] || paths[i].find(word) == std::string::npos) continue;
      taken[i] = true;
      kept.push_back(paths[i]);
    }
  }
  for (const std::string& word : out) {
    std::erase_if(kept, [&](const std::string& p) { return p.find(word) != std::string::npos; });
  }
  return kept;
}

size_t dump_count(uint64_t total_bytes, size_t files, std::optional<int64_t> requested) {
  const uint64_t count =
      requested ? static_cast<uint64_t>(*requested) : total_bytes / kDumpBytes + 1;
  return static_cast<size_t>(std::min<uint64_t>(count, files));
}

std::vector<std::vector<size_t>> balance_dumps(const std::vector<uint64_t>& bytes, size_t dumps) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::vector<size_t>> files(dumps);
  std::vector<uint64_t> sizes(dumps);
  for (const size_t file : order) {
    const auto least =
        static_cast<size_t>(std::min_element(sizes.begin(), sizes.end()) - sizes.begin());
    files[least].push_back(file);
    sizes[least] += bytes[file];
  }
  return files;
}

void add_dumps_data(Command& data) {
  auto flags = std::make_shared<DumpsFlags>();
  Command command =
      data.add_command("dumps", "Divide the texts of a folder into lists of about equal size");
  command.add_option("FOLDER", flags->folder, "Folder of texts, at any depth")
      .required()
      .type_name("");
  command.add_option("--output", flags->output, "Write OUT/dumps/paths_file_N.txt")
      .required()
      .type_name("OUT");
  command.add_option("--n-dumps", flags->dumps, "How many")
      .type_name("N")
      .default_text("one per 150 GB")
      .check(whole_number(1, 1000000));
  command.add_option("--filter-in", flags->filter_in, "Keep only paths that contain one of these")
      .type_name("WORD");
  command.add_option("--filter-out", flags->filter_out, "Leave out paths that contain one of these")
      .type_name("WORD");
  command.add_option("--endings", flags->endings, "Endings of the files' names")
      .type_name("ENDING")
      .default_text(".jsonl, .json and .txt, plain or .gz, .xz, .zst; .parquet");
  command.add_flag("--overwrite", flags->overwrite, "Replace OUT/dumps");
  command.add_flag("--dry-run", flags->dry_run, "Show what would be written, and write nothing");
  add_json_option(command, flags->json);
  command.footer(kDumpsExamples);
  command.action([flags] { prepare_dumps(*flags); });
}

}  // namespace ferry::tool
