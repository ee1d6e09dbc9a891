#include "ckpt/io/staging/write_lock.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/base/random_bits.h"
#include "ckpt/io/staging/leftovers.h"

namespace ferry {
namespace {

std::string random_token() { return fmt::format("{:016x}", random_bits()); }

// How long a writer waits for one that moves a dead one's lock aside: far more than that takes.
constexpr double kMomentSeconds = 2;

std::string minutes(int64_t seconds) { return fmt::format("{} min", seconds / 60); }

}  // namespace

WriteLock::WriteLock(std::shared_ptr<const FileSystem> file_system, std::string target,
                     const WriteLockOptions& options)
    : file_system_(std::move(file_system)),
      target_(std::move(target)),
      parts_(split_path(target_)) {
  record_.owner = ProcessIdentity::current();
  record_.since_seconds = std::chrono::duration_cast<std::chrono::seconds>(
                              std::chrono::system_clock::now().time_since_epoch())
                              .count();
  record_.removes = options.to_remove;
  try {
    write_record();
    const auto start = std::chrono::steady_clock::now();
    while (const auto refusal = try_take(options)) {
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      const double least = options.to_remove ? 0 : refusal->wait_seconds;
      if (waited.count() >= std::max(options.wait_seconds, least)) {
        fail(ErrorKind::busy, "{}", refusal->message);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  } catch (...) {
    try {
      file_system_->remove_all(aside_path(Aside::owner));
    } catch (const std::exception&) {
      // The next lock of the target removes it.
    }
    throw;
  }
  try {
    remove_leftovers();
  } catch (const Error& error) {
    notes_.push_back(
        fmt::format("what earlier writers of {} left is still there: {}", target_, error.what()));
  }
}

// Where something is still set aside, the record stays with it, so that the next lock knows whose
// it was; without this object's lock it counts as a dead owner's.
WriteLock::~WriteLock() {
  const auto stands = [this](Aside kind) {
    return file_system_->status(aside_path(kind)).kind != PathKind::missing;
  };
  try {
    const bool leaves = stands(Aside::partial) || stands(Aside::old) || stands(Aside::trash);
    if (holds_lock_name()) {
      if (leaves) {
        let_others_lock();
      } else {
        file_system_->remove_all(lock_path());
      }
    } else if (!leaves) {
      file_system_->remove_all(aside_path(Aside::owner));  // there when the right was taken over
      if (!record_.locked) remove_moved_record();
    }
  } catch (const std::exception&) {  // out of memory, too
    // Dead with this object, and removed by the next lock of the target.
  }
}

void WriteLock::drop_partial() const noexcept {
  try {
    file_system_->remove_all(partial_path());
  } catch (const std::exception&) {
    // The next lock on the target removes it.
  }
}

void WriteLock::let_others_lock() {
  if (holds_lock_name()) file_system_->rename(lock_path(), aside_path(Aside::owner));
}

bool WriteLock::holds_lock_name() const {
  return read_lock_token(*file_system_, lock_path()) == record_.token;
}

// Without locks another lock may have mistaken the record for a dead one's and be about to put it
// back (set_aside): it must not find it any more. It may move while it is looked for, so twice.
void WriteLock::remove_moved_record() const {
  for (int look = 0; look < 2; ++look) {
    for (const std::string& name : file_system_->list(parts_.parent)) {
      const auto aside = parse_aside(name);
      if (!aside || aside->target_name != parts_.name) continue;
      if (aside->kind != Aside::lock && aside->kind != Aside::owner) continue;
      const std::string path = join(parts_.parent, name);
      if (read_lock_token(*file_system_, path) == record_.token) file_system_->remove_all(path);
    }
  }
}

std::string WriteLock::aside_path(Aside kind) const {
  return join(parts_.parent, aside_name(kind, parts_.name, record_.token));
}

std::string WriteLock::lock_path() const {
  return join(parts_.parent, aside_name(Aside::lock, parts_.name, {}));
}

// The record is written under a name of its own, a new one each time, first, whole, on disk and
// locked, so that whoever finds it under the lock's name finds all of that.
void WriteLock::write_record() {
  record_.token = random_token();
  const std::string path = aside_path(Aside::owner);
  const auto file = file_system_->create(path, 0);
  try {
    lock_ = file_system_->open_lockable(path, LockMode::exclusive);
    record_.locked = lock_->lock(LockMode::exclusive) == LockState::taken;
  } catch (const Error&) {
    lock_.reset();
  }
  const std::string text = record_.to_text();
  file->write(0, std::as_bytes(std::span(text)));
  file->sync();
  now_seconds_ = file_system_->status(path).changed_seconds;
}

// Nothing when the right is taken.
std::optional<WriteLock::Refusal> WriteLock::try_take(const WriteLockOptions& options) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (file_system_->status(lock_path()).kind == PathKind::missing) {
      try {
        file_system_->rename(aside_path(Aside::owner), lock_path());
        return std::nullopt;
      } catch (const Error& error) {
        // Over NFS a call whose answer was lost is repeated, and then fails.
        if (read_lock_token(*file_system_, lock_path()) == record_.token) {
          file_system_->remove_all(aside_path(Aside::owner));
          return std::nullopt;
        }
        if (error.kind() == ErrorKind::not_found) {
          write_record();  // another lock took it, still empty, for one of the dead
        } else if (error.kind() != ErrorKind::invalid) {
          throw;
        }  // invalid: someone was faster
      }
    }
    try {
      if (auto refusal = set_aside(options)) return refusal;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::not_found) throw;  // not_found: given back meanwhile
    }
  }
  return Refusal{
      fmt::format("{} is locked by other processes again and again; try again later", target_),
      kMomentSeconds};
}

// Why an owner whose lock is held, or who is seen to run, keeps the target. A dead owner's lock may
// be held by another process that moves it aside (set_aside); whether the owner of a damaged
// record, or one in another process namespace, is alive does not follow from that.
WriteLock::Refusal WriteLock::refusal_of_living(const LockRecord& found) const {
  const bool is_damaged = found.token.empty();
  const Life owner = is_damaged ? Life::dead : life_of(found.owner);
  if (owner == Life::dead) {
    const std::string who = is_damaged ? "an unknown process" : found.describe();
    return {fmt::format(
                "{} was locked by {}, which has ended, and another process holds its lock: one "
                "that locks {} just now, or a child that it left; run again, or end that process",
                target_, who, target_),
            kMomentSeconds};
  }
  if (found.removes) {
    return {fmt::format("{} is being pruned or cleaned up by {}; wait until it is done, or choose "
                        "another target",
                        target_, found.describe()),
            kRemovalWaitSeconds};
  }
  return {fmt::format("{} is being written by {}; wait until it is done, or choose another target",
                      target_, found.describe()),
          owner == Life::unknown ? kMomentSeconds : 0};
}

// Takes the lock's name from a dead owner. Refused when that one may be alive. The kernel's lock on
// the dead owner's file keeps others from doing the same at once; without locks the file is checked
// again before and after it is moved. Nothing: the name may be free by now.
std::optional<WriteLock::Refusal> WriteLock::set_aside(const WriteLockOptions& options) {
  const std::string path = lock_path();
  const auto record = read_lock_record(*file_system_, path);
  const LockRecord found = record.value_or(LockRecord{});
  const std::string token = record ? found.token : random_token();
  const Life life = life_of(*file_system_, path, found);
  if (life == Life::alive) return refusal_of_living(found);
  std::vector<std::string> names{aside_name(Aside::lock, parts_.name, {})};
  for (const Aside kind : {Aside::partial, Aside::old, Aside::trash}) {
    names.push_back(aside_name(kind, parts_.name, token));
  }
  const int64_t unchanged = unchanged_seconds(*file_system_, parts_.parent, names, now_seconds_);
  if (life == Life::unknown && !options.take_over && unchanged < kTakeOverSeconds) {
    return Refusal{
        fmt::format("{} is locked by {}, and it is unknown whether that still runs. It has changed "
                    "nothing for {}; after {} it counts as dead. If it is dead, remove {}",
                    target_, record ? found.describe() : "an unknown process", minutes(unchanged),
                    minutes(kTakeOverSeconds), path),
        found.removes ? kRemovalWaitSeconds : 0};
  }
  std::unique_ptr<LockableFile> guard;
  try {
    guard = file_system_->open_lockable(path, LockMode::exclusive);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::not_found) throw;  // else of another user: without its lock
  }
  if (guard && guard->lock(LockMode::exclusive) == LockState::busy) {
    return refusal_of_living(found);  // by now
  }
  if (guard && !guard->still_at_path()) return std::nullopt;
  if (read_lock_token(*file_system_, path) != found.token) {
    return std::nullopt;  // given back while it was judged, and maybe another's by now
  }
  std::string aside = join(parts_.parent, aside_name(Aside::owner, parts_.name, token));
  try {
    file_system_->rename(path, aside);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid) throw;
    // Another lock has moved it there; or it died in a rename that is a link and an unlink.
    if (read_lock_token(*file_system_, path) != found.token) return std::nullopt;
    aside = join(parts_.parent, aside_name(Aside::owner, parts_.name, random_token()));
    file_system_->rename(path, aside);
  }
  if (read_lock_token(*file_system_, aside) != found.token) put_back(aside);
  return std::nullopt;
}

// Another owner's lock file that was moved in place of a dead one's. Where a third has the lock's
// name by now, its owner gets an error when it commits.
void WriteLock::put_back(const std::string& aside) {
  try {
    file_system_->rename(aside, lock_path());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid) throw;
    file_system_->remove_all(aside);
  }
}

// What another lock's token marks next to the target is removed when that lock's owner is dead, or
// is unknown and nothing has changed for long.
void WriteLock::remove_leftovers() {
  const auto leftovers = find_leftovers(*file_system_, parts_.parent, parts_.name, now_seconds_);
  for (const Leftover& left : leftovers) {
    if (left.token == record_.token || left.token.empty()) continue;
    if (left.removable()) {
      remove_leftovers_of(left.token);
    } else if (left.life == Life::unknown && !left.names.empty()) {
      notes_.push_back(fmt::format(
          "{} of {} is kept: it is unknown whether that still runs. It is removed when it has not "
          "changed for 24 h ({} so far); remove it yourself if that is dead",
          join(parts_.parent, left.names[0]), left.who, minutes(left.unchanged_seconds)));
    }
  }
}

void WriteLock::remove_leftovers_of(const std::string& token) {
  const auto path = [&](Aside kind) {
    return join(parts_.parent, aside_name(kind, parts_.name, token));
  };
  // The former target first: it died between the two renames of a file system without exchange.
  const bool has_old = file_system_->status(path(Aside::old)).kind != PathKind::missing;
  if (has_old && file_system_->status(target_).kind == PathKind::missing) {
    file_system_->rename(path(Aside::old), target_);
    file_system_->sync_folder(parts_.parent);
  }
  for (const Aside kind : {Aside::partial, Aside::old, Aside::trash, Aside::owner}) {
    file_system_->remove_all(
        path(kind));  // the record last: it says that the others are a dead owner's
  }
}

void WriteLock::check() const {
  std::optional<LockRecord> record;
  try {
    record = read_lock_record(*file_system_, lock_path());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    // Removed by hand, and nobody else has it; unless another lock moved it aside, and is done.
    if (file_system_->status(aside_path(Aside::owner)).kind == PathKind::missing) return;
  }
  if (record && record->token == record_.token) return;
  fail(ErrorKind::busy, "{} was taken over by {}, as this process seemed dead", target_,
       record ? record->describe() : "another process");
}

}  // namespace ferry
