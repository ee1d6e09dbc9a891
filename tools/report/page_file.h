// A page as a file: it appears whole or not at all, and replaces nothing but pages.
#pragma once

#include <memory>
#include <string>

#include "ckpt/io/file_system.h"

namespace ferry::tool {

struct PageFile {
  std::string path;        // "-": standard output
  bool overwrite = false;  // a page that ferry wrote
};

/// invalid where the file is there and may not be replaced, or its name is not a file's.
void check_page_file(const FileSystem& file_system, const PageFile& file);

/// Writes the page and prints its size. If several processes write it, the last one wins where it
/// may replace.
void write_page_file(const std::shared_ptr<const FileSystem>& file_system, const PageFile& file,
                     const std::string& page);

}  // namespace ferry::tool
