#include "ckpt/io/staging/leftovers.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr int kChangeDepth = 3;  // a partial run folder, its iterations, their rank folders

// Records and other names of one lock.
struct Found {
  std::vector<std::string> records, names;
};
using FoundByLock = std::map<std::pair<std::string, std::string>, Found>;

// The record of a lock file that holds its name; empty also where only another user may read it.
std::string token_in(const FileSystem& file_system, const std::string& path) {
  try {
    return read_lock_token(file_system, path);
  } catch (const Error&) {
    return {};
  }
}

FoundByLock find_all(const FileSystem& file_system, const std::string& folder,
                     const std::string& target_name) {
  FoundByLock found;
  for (const std::string& name : file_system.list(folder)) {
    const auto aside = parse_aside(name);
    if (!aside || (!target_name.empty() && aside->target_name != target_name)) continue;
    const bool is_lock = aside->kind == Aside::lock;
    const std::string token = is_lock ? token_in(file_system, join(folder, name)) : aside->token;
    Found& write_lock = found[{aside->target_name, token}];
    (is_lock || aside->kind == Aside::owner ? write_lock.records : write_lock.names)
        .push_back(name);
  }
  return found;
}

void judge(const FileSystem& file_system, const std::string& folder, const std::string& record_name,
           Leftover& left) {
  const std::string path = join(folder, record_name);
  std::optional<LockRecord> record;
  try {
    record = read_lock_record(file_system, path);
  } catch (const Error&) {
    return;  // given back meanwhile, or another user's alone
  }
  Life life = life_of(file_system, path, record.value_or(LockRecord{}));
  // Its writer died, or is about to lock and fill it: then it makes another one (write_lock.cpp).
  const bool never_locked = !record && !left.token.empty() && left.names.empty();
  if (never_locked && life == Life::unknown) life = Life::dead;
  if (left.life != Life::alive) left.life = life;
  if (record) left.who = record->describe();
}

}  // namespace

int64_t newest_change(const FileSystem& file_system, const std::string& path, int depth) {
  const PathStatus status = file_system.status(path);
  int64_t newest = status.changed_seconds;
  if (status.kind != PathKind::folder || status.link || depth == 0) return newest;
  try {
    for (const std::string& name : file_system.list(path)) {
      newest = std::max(newest, newest_change(file_system, join(path, name), depth - 1));
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;  // its owner removed it meanwhile
  }
  return newest;
}

Life life_of(const FileSystem& file_system, const std::string& path, const LockRecord& record) {
  LockState lock = LockState::unsupported;
  try {
    lock = file_system.open_lockable(path, LockMode::shared)->probe(LockMode::exclusive);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_found) return Life::dead;
  }
  if (lock == LockState::busy) return Life::alive;
  // The kernel that gave the lock is this one: it would show.
  const bool lock_decides = record.locked && lock == LockState::taken &&
                            !record.owner.boot.empty() &&
                            record.owner.boot == ProcessIdentity::current().boot;
  return lock_decides ? Life::dead : life_of(record.owner);
}

int64_t unchanged_seconds(const FileSystem& file_system, const std::string& folder,
                          const std::vector<std::string>& names, int64_t now_seconds) {
  int64_t newest = 0;
  for (const std::string& name : names) {
    newest = std::max(newest, newest_change(file_system, join(folder, name), kChangeDepth));
  }
  return std::max<int64_t>(now_seconds - newest, 0);
}

std::vector<Leftover> find_leftovers(const FileSystem& file_system, const std::string& folder,
                                     const std::string& target_name, int64_t now_seconds) {
  std::vector<Leftover> leftovers;
  for (const auto& [write_lock, found] : find_all(file_system, folder, target_name)) {
    Leftover left{write_lock.first, write_lock.second,    found.names,
                  Life::unknown,    "an unknown process", 0};
    for (const std::string& name : found.records) judge(file_system, folder, name, left);
    std::vector<std::string> all = found.records;
    all.insert(all.end(), found.names.begin(), found.names.end());
    left.unchanged_seconds = unchanged_seconds(file_system, folder, all, now_seconds);
    leftovers.push_back(std::move(left));
  }
  return leftovers;
}

}  // namespace ferry
