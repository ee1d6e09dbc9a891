#include "tools/report/page_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/publish.h"
#include "tools/report/html.h"
#include "tools/terminal/output.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

constexpr uint64_t kPageHead = 4096;         // bytes; the mark stands before the styles
constexpr double kWaitForWriterSeconds = 2;  // for another process that writes the page

// Whether the file begins as the pages do.
bool is_page(const FileSystem& file_system, const std::string& path) {
  const auto file = file_system.open(path);
  std::string begin(std::min<uint64_t>(file->size(), kPageHead), '\0');
  file->read(0, std::as_writable_bytes(std::span(begin)));
  return begin.find(kPageMark) != std::string::npos;
}

// Where the file would lie.
void check_folder(const FileSystem& file_system, const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (folder.empty() || file_system.status(folder).kind == PathKind::folder) return;
  fail(ErrorKind::not_found, "-o {}: there is no folder {}; make it, or name another place", path,
       folder);
}

void write_page(const std::shared_ptr<const FileSystem>& file_system, const PageFile& file,
                const std::string& page) {
  std::error_code error;
  const std::string linked = std::filesystem::canonical(file.path, error).string();
  const std::string target = error ? file.path : linked;  // a link stays one
  const WriteLock lock(file_system, target, {.wait_seconds = kWaitForWriterSeconds});
  check_page_file(*file_system, file);
  publish_file(*file_system, lock, target, page, Existing::replace);
}

}  // namespace

// Files of a checkpoint, and whatever somebody else wrote, are not to be replaced by a page.
void check_page_file(const FileSystem& file_system, const PageFile& file) {
  const std::string& path = file.path;
  if (path == "-") return;
  if (path.empty()) {
    fail(ErrorKind::invalid, "-o needs the name of a file to write, or - for stdout");
  }
  const PathStatus status = file_system.status(path);
  if (status.kind == PathKind::missing) return check_folder(file_system, path);
  if (status.kind != PathKind::file) fail(ErrorKind::invalid, "{} is not a file", path);
  if (!file.overwrite) fail(ErrorKind::invalid, "{} exists; --overwrite replaces it", path);
  if (is_page(file_system, path)) return;
  fail(ErrorKind::invalid,
       "{} is not a page that ferry wrote, and --overwrite replaces nothing else; choose another "
       "name",
       path);
}

void write_page_file(const std::shared_ptr<const FileSystem>& file_system, const PageFile& file,
                     const std::string& page) {
  if (file.path == "-") return print(page);
  write_page(file_system, file, page);
  print_done(fmt::format("wrote {}, {}\n", printable(file.path), human_bytes(page.size())),
             file.path + " is complete");
}

}  // namespace ferry::tool
