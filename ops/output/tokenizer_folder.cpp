#include "ops/output/tokenizer_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <utility>

#include "ckpt/base/utf8.h"
#include "ckpt/format/pickle/values/draft.h"
#include "convert/tokenizer.h"
#include "ops/output/paths.h"

namespace ferry {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostFileBytes = uint64_t{1} << 30;  // of one file
constexpr int kMostFolderDepth = 4;                     // a link may lead back to its own folder
constexpr size_t kMostFiles = 1000;

void add_files_below(const FileSystem& file_system, const std::string& inside, int depth,
                     RunTokenizer& tokenizer) {
  for (const std::string& name : file_system.list(join(tokenizer.folder, inside))) {
    const std::string inner = join(inside, name), path = join(tokenizer.folder, inner);
    const PathStatus status = file_system.status(path);
    const bool is_text = utf8_prefix(name, false) == name.size();
    if (status.kind == PathKind::folder && depth < kMostFolderDepth) {
      add_files_below(file_system, inner, depth + 1, tokenizer);
    } else if (status.kind == PathKind::file && is_text && tokenizer.files.size() < kMostFiles) {
      tokenizer.files.push_back({path, inner, status.bytes});
    } else {
      tokenizer.warnings.push_back(
          fmt::format("{} is left out: {}", path,
                      is_text ? "no file of a tokenizer's folder" : "its name is not UTF-8"));
    }
  }
}

}  // namespace

RunTokenizer tokenizer_of_run(const FileSystem& file_system, const Checkpoint& checkpoint) {
  RunTokenizer tokenizer;
  tokenizer.folder = join(checkpoint.path, kTokenizerFolder);
  if (file_system.status(tokenizer.folder).kind == PathKind::folder) {
    add_files_below(file_system, "", 0, tokenizer);
  }
  if (!tokenizer.files.empty()) return tokenizer;
  tokenizer.files = find_tokenizer(file_system, checkpoint, "").files;
  if (tokenizer.files.empty()) return tokenizer;
  const CopiedFile& first = tokenizer.files[0];
  tokenizer.folder = first.from.substr(0, first.from.size() - first.name.size() - 1);
  return tokenizer;
}

LoadedValue with_tokenizer_in(LoadedValue args, const std::string& from, const std::string& to) {
  const auto model = args.value.get("tokenizer_model").string();
  if (!model || model->empty() || !is_same_or_inside(std::string(*model), from)) return args;
  const fs::path inside = canonical(std::string(*model)).lexically_relative(canonical(from));
  const fs::path moved = (fs::path(absolute(to)) / inside).lexically_normal();
  Draft draft;
  const Value copy = draft.copy(args.value);
  const std::string text = moved.has_filename() ? moved.string() : moved.parent_path().string();
  draft.put(copy, "tokenizer_model", draft.string(text));
  return std::move(draft).finish(copy);
}

void add_files(const FileSystem& file_system, const std::vector<CopiedFile>& files,
               const std::string& folder, PlannedOutput& planned) {
  std::vector<std::pair<std::string, std::string>> added;
  for (const CopiedFile& file : files) {
    added.emplace_back(join(folder, file.name), read_file(file_system, file.from, kMostFileBytes));
  }
  planned.small_files.insert(planned.small_files.begin(), std::make_move_iterator(added.begin()),
                             std::make_move_iterator(added.end()));
}

}  // namespace ferry
