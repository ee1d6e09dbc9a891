#include "tools/data/tokenize/text_inputs.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "ckpt/base/error.h"
#include "tools/data/streams/byte_stream.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kLongestList = 1 << 30;  // bytes

std::vector<std::string> files_that_fit(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

TextFormat format_of(const std::string& path) {
  std::string name = split_path(path).name;
  for (const char* suffix : {".gz", ".xz", ".zst"}) {
    if (name.ends_with(suffix)) name.resize(name.rfind('.'));
  }
  return name.ends_with(".txt") ? TextFormat::text : TextFormat::json_lines;
}

TextInput input_at(const FileSystem& file_system, const std::string& path, TextFormat format) {
  TextInput input{.path = path, .format = format == TextFormat::by_name ? format_of(path) : format};
  if (path == "-") {
    input.is_file = false;
    return input;
  }
  const PathStatus status = file_system.status(path);
  if (status.kind == PathKind::missing && path.find("://") != std::string::npos) {
    fail(ErrorKind::unsupported,
         "{} is an address, and --input takes files; give it through a pipe, as in "
         "curl -s {} | ferry data tokenize --input - ...",
         path, path);
  }
  if (status.kind == PathKind::missing) {
    fail(ErrorKind::not_found,
         "{} does not exist; --input takes files, patterns such as "
         "'data/*.jsonl.gz', and - for standard input",
         path);
  }
  if (status.kind == PathKind::folder) {
    fail(ErrorKind::invalid, "{} is a folder; give its files: '{}/*'", path, path);
  }
  input.is_file = status.kind == PathKind::file;
  if (!input.is_file) return input;
  input.bytes = status.bytes;
  input.changed_seconds = status.changed_seconds;
  std::array<std::byte, 6> first;
  const auto file = file_system.open(path);
  const auto head = std::span(first).first(std::min<uint64_t>(first.size(), file->size()));
  file->read(0, head);
  const Compression compression = compression_of(head, path);
  input.can_seek = compression == Compression::none;
  input.is_parquet = compression == Compression::parquet;
  if (input.is_parquet && input.format != TextFormat::json_lines) {
    fail(ErrorKind::invalid,
         "{} is a Parquet file, whose rows are read as JSON lines; leave out "
         "--input-format, and give it another ending than .txt",
         path);
  }
  return input;
}

}  // namespace

std::vector<TextInput> find_inputs(const FileSystem& file_system,
                                   const std::vector<std::string>& paths, TextFormat format) {
  std::vector<TextInput> inputs;
  for (const std::string& path : paths) {
    const bool is_pattern = path.find_first_of("*?[") != std::string::npos &&
                            file_system.status(path).kind == PathKind::missing;
    if (!is_pattern) {
      inputs.push_back(input_at(file_system, path, format));
      continue;
    }
    const std::vector<std::string> found = files_that_fit(path);
    if (found.empty()) fail(ErrorKind::not_found, "no file fits the pattern {}", path);
    for (const std::string& one : found) inputs.push_back(input_at(file_system, one, format));
  }
  if (std::count_if(inputs.begin(), inputs.end(), [](const auto& one) { return one.path == "-"; }) >
      1) {
    fail(ErrorKind::invalid, "standard input (-) can be read once, and is given several times");
  }
  return inputs;
}

std::vector<std::string> paths_of_list(const FileSystem& file_system, const std::string& list,
                                       const std::string& folder) {
  std::vector<std::string> paths;
  std::istringstream lines(read_file(file_system, list, kLongestList));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    paths.push_back(line.starts_with('/') || folder.empty() ? line : join_untrusted(folder, line));
  }
  if (paths.empty()) fail(ErrorKind::invalid, "{} names no file", list);
  return paths;
}

std::vector<InputRange> ranges_of(const std::vector<TextInput>& inputs, const Part& part) {
  uint64_t total = 0;
  for (const TextInput& input : inputs) {
    total += std::max<uint64_t>(input.bytes, 1);  // an empty file belongs to one part, too
    if (!input.is_file && part.count > 1) {
      fail(ErrorKind::invalid, "{} is not a regular file, and cannot be divided by --part",
           input.path == "-" ? "standard input" : input.path);
    }
  }
  __extension__ using uint128_t = unsigned __int128;
  const auto bound = [&](int64_t k) {
    return static_cast<uint64_t>(static_cast<uint128_t>(total) * static_cast<uint64_t>(k) /
                                 static_cast<uint64_t>(part.count));
  };
  const uint64_t first = bound(part.number), last = bound(part.number + 1);
  std::vector<InputRange> ranges;
  uint64_t before = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const uint64_t bytes = std::max<uint64_t>(inputs[i].bytes, 1), begin = before;
    before += bytes;
    if (!inputs[i].can_seek || inputs[i].format == TextFormat::text) {
      if (begin >= first && begin < last) ranges.push_back({i, 0, UINT64_MAX});
      continue;
    }
    const uint64_t from = std::max(begin, first), to = std::min(begin + bytes, last);
    if (from < to) ranges.push_back({i, from - begin, to - begin});
  }
  return ranges;
}

}  // namespace ferry::tool
