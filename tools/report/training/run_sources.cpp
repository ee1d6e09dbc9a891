#include "tools/report/training/run_sources.h"

#include <algorithm>
#include <span>
#include <vector>

#include "ckpt/base/error.h"
#include "ckpt/store/run_folder.h"
#include "tools/terminal/text.h"
#include "trainer/log/log_lines.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kLogPiece = 1 << 20;     // bytes
constexpr size_t kMostLineBytes = 1 << 16;  // of a longer line, the rest says nothing
constexpr size_t kMostSourceFiles = 1000;   // of a folder

// "a,b" as two paths, unless a file has that name.
std::vector<std::string> split_at_commas(const FileSystem& file_system, const std::string& paths) {
  if (file_system.status(paths).kind != PathKind::missing) return {paths};
  std::vector<std::string> parts(1);
  for (const char c : paths) {
    if (c != ',') {
      parts.back() += c;
    } else {
      parts.emplace_back();
    }
  }
  std::erase(parts, "");
  return parts;
}

std::vector<std::string> split_paths(const FileSystem& file_system, const std::string& paths) {
  std::vector<std::string> all;
  for (const std::string& path : split_at_commas(file_system, paths)) {
    const std::vector<std::string> parts = parts_of_experiment(file_system, path);
    if (parts.empty()) all.push_back(path);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

std::vector<std::string> files_of(const FileSystem& file_system, const std::string& path) {
  if (file_system.status(path).kind != PathKind::folder) return {path};
  std::vector<std::string> files;
  for (const std::string& name : file_system.list(path)) {
    const std::string file = join(path, name);
    if (is_run_source(name) && files.size() < kMostSourceFiles &&
        file_system.status(file).kind == PathKind::file) {
      files.push_back(file);
    }
  }
  return files;
}

void read_lines(const ReadableFile& file, const std::function<void(const LogRecord&)>& take,
                const std::function<void(uint64_t)>& read) {
  std::string line, piece;
  bool has_line = false;
  const auto end_line = [&] {
    take(read_log_line(line));
    line.clear();
    has_line = false;
  };
  for (uint64_t at = 0; at < file.size(); at += piece.size()) {
    piece.resize(std::min(kLogPiece, file.size() - at));
    file.read(at, std::as_writable_bytes(std::span(piece)));
    for (size_t begin = 0; begin < piece.size();) {
      const size_t newline = std::min(piece.find('\n', begin), piece.size());
      line.append(piece, begin, std::min(newline - begin, kMostLineBytes - line.size()));
      has_line = true;
      if (newline < piece.size()) end_line();
      begin = newline + 1;
    }
    if (read) read(piece.size());
  }
  if (has_line) end_line();
}

void add_folder(const FileSystem& file_system, const std::string& path,
                RunFiguresBuilder& builder) {
  for (const IterationFolder& folder : read_run_folder(file_system, path).iterations) {
    if (!folder.iteration || !folder.complete()) continue;
    const PathStatus status = file_system.status(join(path, folder.name));
    const std::string when = date_and_time(status.changed_seconds * 1'000'000);
    builder.add_on_disk(*folder.iteration, when.substr(0, when.find('.')));
  }
}

}  // namespace

std::vector<std::string> parts_of_experiment(const FileSystem& file_system,
                                             const std::string& path) {
  const auto kind = [&](const std::string& one) { return file_system.status(one).kind; };
  const std::string run = join(path, "checkpoints"), logs = join(path, "logs");
  const bool is_saved = kind(run) == PathKind::folder && is_run_folder(file_system, run);
  const bool is_launched = kind(join(path, "launch/settings.sh")) == PathKind::file;
  std::vector<std::string> parts;
  if (!is_saved && !is_launched) return parts;
  for (const std::string& part : {logs, run}) {
    if (kind(part) == PathKind::folder) parts.push_back(part);
  }
  return parts;
}

RunFigures read_run_figures(const FileSystem& file_system, const std::string& paths,
                            const std::function<void(uint64_t)>& read) {
  RunFiguresBuilder builder;
  for (const std::string& path : split_paths(file_system, paths)) {
    for (const std::string& file : files_of(file_system, path)) {
      builder.add_source(file);
      const auto take = [&](const LogRecord& record) {
        builder.add_line();
        builder.add(record);
      };
      read_lines(*file_system.open(file), take, read);
    }
    // After the files: these say when something was saved, a folder only when it last changed.
    if (file_system.status(path).kind == PathKind::folder) add_folder(file_system, path, builder);
  }
  RunFigures run = builder.finish(paths);
  if (run.lines_used == 0 && run.saves.empty()) {
    fail(ErrorKind::not_found,
         "{} holds nothing of a run's training: expected a log of Megatron-LM or ferry, JSON lines "
         "of --metrics-json, progress.txt or a run folder",
         printable(paths));
  }
  return run;
}

bool is_run_source(std::string_view name) {
  return name == "progress.txt" || name.ends_with(".log") || name.ends_with(".out") ||
         name.ends_with(".jsonl");
}

std::vector<std::string> run_source_files(const FileSystem& file_system, const std::string& paths) {
  std::vector<std::string> all;
  for (const std::string& path : split_paths(file_system, paths)) {
    for (std::string& file : files_of(file_system, path)) all.push_back(std::move(file));
  }
  return all;
}

void read_run_records(const FileSystem& file_system, const std::string& paths,
                      const std::function<void(const LogRecord&)>& take) {
  for (const std::string& file : run_source_files(file_system, paths)) {
    read_lines(*file_system.open(file), take, {});
  }
}

uint64_t bytes_of_run_figures(const FileSystem& file_system, const std::string& paths) {
  uint64_t bytes = 0;
  for (const std::string& path : split_paths(file_system, paths)) {
    for (const std::string& file : files_of(file_system, path)) {
      bytes += file_system.open(file)->size();
    }
  }
  return bytes;
}

}  // namespace ferry::tool
