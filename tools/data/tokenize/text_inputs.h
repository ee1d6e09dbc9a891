// Which texts are tokenised: files as they are named, and the part of them that is a process's own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

enum class TextFormat {
  by_name,  // .txt: text; all else JSON lines
  json_lines,
  text,  // each file is a document
  lines  // each line is a document
};

struct TextInput {
  std::string path;  // "-": standard input
  TextFormat format = TextFormat::json_lines;
  bool can_seek = false;        // a regular file that is not compressed
  bool is_parquet = false;      // whose rows are lines
  bool is_file = true;          // a regular file
  uint64_t bytes = 0;           // as they are stored
  int64_t changed_seconds = 0;  // when its content last changed
};

/// In the order given. A pattern (*, ?, [...]) that is not a file's name stands for the files that
/// fit it, by name. not_found for a missing file or a pattern that nothing fits; invalid for a
/// folder.
std::vector<TextInput> find_inputs(const FileSystem& file_system,
                                   const std::vector<std::string>& paths, TextFormat format);

/// What a list names, one path a line, relative to `folder`. corrupt for a path that leaves it.
std::vector<std::string> paths_of_list(const FileSystem& file_system, const std::string& list,
                                       const std::string& folder);

/// Part `number` of `count`, which together are everything, in order.
struct Part {
  int64_t number = 0, count = 1;
};

/// Lines of an input that begin in [begin, end) of its stored bytes. An input that cannot seek, or
/// is one document, goes whole to the part where it begins.
struct InputRange {
  size_t input = 0;
  uint64_t begin = 0, end = 0;
};

/// About as many stored bytes for each part. invalid where standard input should be divided.
std::vector<InputRange> ranges_of(const std::vector<TextInput>& inputs, const Part& part);

}  // namespace ferry::tool
