#include "ckpt/io/staging.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <random>
#include <span>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::string_view kMark = ".ferry-partial-";

struct SplitPath {
  std::string parent;
  std::string name;
};

SplitPath split(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

std::string host_name() {
  std::array<char, 256> buffer{};
  ::gethostname(buffer.data(), buffer.size() - 1);
  std::string name(buffer.data());
  for (char& c : name) {
    if (c == '/' || c == '-') c = '_';  // '-' parts the fields of a partial folder's name
  }
  return name;
}

// Removes what processes of this host left when they died. Those of other hosts cannot be judged.
void remove_leftovers(const FileSystem& file_system, const SplitPath& target) {
  const std::string prefix = "." + target.name + std::string(kMark) + host_name() + "-";
  for (const std::string& name : file_system.list(target.parent)) {
    if (!name.starts_with(prefix)) continue;
    pid_t process = 0;
    const char* begin = name.data() + prefix.size();
    const auto [end, code] = std::from_chars(begin, name.data() + name.size(), process);
    if (code != std::errc() || process <= 0) continue;
    if (::kill(process, 0) != 0 && errno == ESRCH)
      file_system.remove_all(join(target.parent, name));
  }
}

}  // namespace

StagedFolder::StagedFolder(std::shared_ptr<const FileSystem> file_system, std::string target,
                           bool overwrite)
    : file_system_(std::move(file_system)), target_(std::move(target)), overwrite_(overwrite) {
  while (target_.size() > 1 && target_.back() == '/') target_.pop_back();
  const SplitPath parts = split(target_);
  if (parts.name.empty() || parts.name == "." || parts.name == "..") {
    fail(ErrorKind::invalid, "'{}' cannot be a target: give the name of a folder to create",
         target_);
  }
  if (file_system_->status(parts.parent).kind != PathKind::folder) {
    fail(ErrorKind::not_found, "the folder {} of target {} does not exist; create it first",
         parts.parent, target_);
  }
  check_target();
  remove_leftovers(*file_system_, parts);
  const std::string stem = join(parts.parent, "." + parts.name + std::string(kMark)) + host_name() +
                           "-" + std::to_string(::getpid()) + "-";
  partial_ = stem + std::to_string(std::random_device()());
  file_system_->create_folder(partial_);
}

StagedFolder::~StagedFolder() {
  if (committed_) return;
  try {
    file_system_->remove_all(partial_);
  } catch (const Error&) {
    // Nothing more can be done; the next writer of the target tries again.
  }
}

void StagedFolder::check_target() const {
  const PathKind kind = file_system_->status(target_).kind;
  if (kind == PathKind::missing) return;
  if (kind != PathKind::folder) {
    fail(ErrorKind::invalid, "the target {} exists and is not a folder", target_);
  }
  if (!overwrite_) {
    fail(ErrorKind::invalid,
         "the target {} exists; choose another, or give --overwrite to replace it", target_);
  }
}

void StagedFolder::write_file(const std::string& name, const std::string& content) {
  const auto file = file_system_->create(join(partial_, name), content.size());
  file->write(0, std::as_bytes(std::span(content)));
  file->sync();
}

void StagedFolder::commit() {
  file_system_->sync_folder(partial_);
  const std::string parent = split(target_).parent;
  check_target();
  if (file_system_->status(target_).kind == PathKind::missing) {
    file_system_->rename(partial_, target_);
    committed_ = true;
    file_system_->sync_folder(parent);
    return;
  }
  replace_target();
  committed_ = true;
  file_system_->sync_folder(parent);
  file_system_->remove_all(partial_);  // by now the older target
}

// Puts the partial folder under the target's name and the older one under the partial's.
void StagedFolder::replace_target() {
  try {
    file_system_->exchange(partial_, target_);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    const std::string aside = partial_ + "-old";
    file_system_->rename(target_, aside);
    try {
      file_system_->rename(partial_, target_);
    } catch (...) {
      file_system_->rename(aside, target_);
      throw;
    }
    file_system_->rename(aside, partial_);
  }
}

}  // namespace ferry
