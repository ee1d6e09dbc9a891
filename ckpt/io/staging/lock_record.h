// The names next to a target while it is written, or after a crash, and what a lock file says. With
// NAME the target's name and T the random token of a lock:
//
//   .ferry-lock.NAME         who writes it, locked by the kernel too
//   .ferry-owner.NAME.T      the same, before it gets the name above or after it lost it
//   .ferry-partial.NAME.T    what is being written; after an exchange, what was replaced
//   .ferry-old.NAME.T        the former target, where the file system cannot exchange two names
//   .ferry-trash.NAME.T      what is being removed
//
// In NAME, '-', '_' and '=' before a digit and every '%' are written "%2D" and so on: no program
// that searches folder names for "iter_0000100" or "step-100" takes one of these for a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/processes.h"

namespace ferry {

enum class Aside : uint8_t { lock, owner, partial, old, trash };

/// ".ferry-partial.NAME.T"; for Aside::lock without the token.
std::string aside_name(Aside kind, std::string_view target_name, std::string_view token);

struct AsideName {
  Aside kind = Aside::lock;
  std::string target_name;
  std::string token;  // empty for Aside::lock
};
/// What a name that aside_name() made stands for; nothing for all other names, which anyone may
/// have made. So `target_name` is the name of something in the same folder, never a path.
std::optional<AsideName> parse_aside(std::string_view name);

struct LockRecord {
  ProcessIdentity owner;
  int64_t since_seconds = 0;  // Unix time, by the owner's clock
  bool locked = false;        // the owner holds the kernel's exclusive lock on the file
  bool removes = false;       // the owner writes nothing (WriteLockOptions::to_remove)
  std::string token;

  std::string to_text() const;
  std::string describe() const;  // "process 123 on node7 since 2026-03-01 12:00:00 UTC"
};

/// Nothing when the file is not a record (empty after a power loss, or of something else).
/// not_found when it is missing.
std::optional<LockRecord> read_lock_record(const FileSystem& file_system, const std::string& path);
/// Its token; empty when the file is not a record or missing.
std::string read_lock_token(const FileSystem& file_system, const std::string& path);

}  // namespace ferry
