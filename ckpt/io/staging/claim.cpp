#include "ckpt/io/staging/claim.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <random>
#include <thread>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/leftovers.h"

namespace ferry {
namespace {

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// How long a writer waits for one that moves a dead one's lock aside: far more than that takes.
constexpr double kMomentSeconds = 2;

std::string minutes(int64_t seconds) { return fmt::format("{} min", seconds / 60); }

}  // namespace

Claim::Claim(std::shared_ptr<const FileSystem> file_system, std::string target,
             const ClaimOptions& options)
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
      file_system_->remove_all(beside(Aside::owner));
    } catch (const std::exception&) {
      // The next claim of the target removes it.
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

// Where something still stands aside, the record stays beside it, so that the next claim knows
// whose it was; with this object's lock gone it counts as a dead one's.
Claim::~Claim() {
  const auto stands = [this](Aside kind) {
    return file_system_->status(beside(kind)).kind != PathKind::missing;
  };
  try {
    const bool leaves = stands(Aside::partial) || stands(Aside::old) || stands(Aside::trash);
    if (holds_lock_name()) {
      if (leaves) {
        let_others_claim();
      } else {
        file_system_->remove_all(lock_path());
      }
    } else if (!leaves) {
      file_system_->remove_all(beside(Aside::owner));  // there when the right was taken over
      if (!record_.locked) remove_moved_record();
    }
  } catch (const std::exception&) {  // want of memory, too
    // Dead with this object, and removed by the next claim of the target.
  }
}

void Claim::drop_partial() const noexcept {
  try {
    file_system_->remove_all(partial_path());
  } catch (const std::exception&) {
    // The next claim on the target removes it.
  }
}

void Claim::let_others_claim() {
  if (holds_lock_name()) file_system_->rename(lock_path(), beside(Aside::owner));
}

bool Claim::holds_lock_name() const {
  return read_claim_token(*file_system_, lock_path()) == record_.token;
}

// Without locks another claim may have mistaken the record for a dead one's and be about to put it
// back (set_aside): it must not find it any more. It may move while it is looked for, so twice.
void Claim::remove_moved_record() const {
  for (int look = 0; look < 2; ++look) {
    for (const std::string& name : file_system_->list(parts_.parent)) {
      const auto aside = parse_aside(name);
      if (!aside || aside->target_name != parts_.name) continue;
      if (aside->kind != Aside::lock && aside->kind != Aside::owner) continue;
      const std::string path = join(parts_.parent, name);
      if (read_claim_token(*file_system_, path) == record_.token) file_system_->remove_all(path);
    }
  }
}

std::string Claim::beside(Aside kind) const {
  return join(parts_.parent, aside_name(kind, parts_.name, record_.token));
}

std::string Claim::lock_path() const {
  return join(parts_.parent, aside_name(Aside::lock, parts_.name, {}));
}

// The record stands under a name of its own, a new one each time, first, whole, on disk and locked,
// so that whoever finds it under the lock's name finds all of that.
void Claim::write_record() {
  record_.token = random_token();
  const std::string path = beside(Aside::owner);
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
std::optional<Claim::Refusal> Claim::try_take(const ClaimOptions& options) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (file_system_->status(lock_path()).kind == PathKind::missing) {
      try {
        file_system_->rename(beside(Aside::owner), lock_path());
        return std::nullopt;
      } catch (const Error& error) {
        // Over NFS a call whose answer was lost is made again, and then told that it cannot be.
        if (read_claim_token(*file_system_, lock_path()) == record_.token) {
          file_system_->remove_all(beside(Aside::owner));
          return std::nullopt;
        }
        if (error.kind() == ErrorKind::not_found) {
          write_record();  // another claim took it, still empty, for one of the dead
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
  return Refusal{fmt::format("{} is claimed by others all the time; try again", target_),
                 kMomentSeconds};
}

// Why one whose lock is held, or who is seen to run, keeps the target. A dead owner's lock is held
// by another claim that moves it aside (set_aside); whether the owner of a damaged record, or
// behind another namespace of processes, lives cannot be told from that.
Claim::Refusal Claim::refusal_of_living(const ClaimRecord& found) const {
  const bool is_damaged = found.token.empty();
  const Life owner = is_damaged ? Life::dead : life_of(found.owner);
  if (owner == Life::dead) {
    const std::string who = is_damaged ? "an unknown process" : found.describe();
    return {
        fmt::format("{} was claimed by {}, which has ended, and another process holds its lock: "
                    "one that claims {} just now, or a child that it left; run again, or end "
                    "that",
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

// Takes the lock's name from a dead owner. Refused when that one may live. The kernel's lock on the
// dead owner's file keeps others from doing the same at once; without locks the file is looked at
// again before it is moved and after. Nothing: the name may be free by now.
std::optional<Claim::Refusal> Claim::set_aside(const ClaimOptions& options) {
  const std::string path = lock_path();
  const auto record = read_claim_record(*file_system_, path);
  const ClaimRecord found = record.value_or(ClaimRecord{});
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
        fmt::format("{} is claimed by {}, and whether that still runs cannot be seen from here. "
                    "Nothing of it changed for {}: it is taken for dead after {}. If it is dead, "
                    "remove {}",
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
  if (read_claim_token(*file_system_, path) != found.token) {
    return std::nullopt;  // given back while it was judged, and maybe another's by now
  }
  std::string aside = join(parts_.parent, aside_name(Aside::owner, parts_.name, token));
  try {
    file_system_->rename(path, aside);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid) throw;
    // Another claim has moved it there; or it died in a rename that is a link and an unlink.
    if (read_claim_token(*file_system_, path) != found.token) return std::nullopt;
    aside = join(parts_.parent, aside_name(Aside::owner, parts_.name, random_token()));
    file_system_->rename(path, aside);
  }
  if (read_claim_token(*file_system_, aside) != found.token) put_back(aside);
  return std::nullopt;
}

// Another's lock file that was moved in a dead one's place. Where a third has the lock's name by
// now, its owner is told when it commits.
void Claim::put_back(const std::string& aside) {
  try {
    file_system_->rename(aside, lock_path());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::invalid) throw;
    file_system_->remove_all(aside);
  }
}

// What stands beside the target with another claim's token is removed when that claim's owner is
// dead, or cannot be judged and nothing changed for long.
void Claim::remove_leftovers() {
  const auto leftovers = find_leftovers(*file_system_, parts_.parent, parts_.name, now_seconds_);
  for (const Leftover& left : leftovers) {
    if (left.token == record_.token || left.token.empty()) continue;
    if (left.removable()) {
      remove_leftovers_of(left.token);
    } else if (left.life == Life::unknown && !left.names.empty()) {
      notes_.push_back(fmt::format(
          "{} of {} is kept: whether that still runs cannot be seen from here. It is removed when "
          "nothing of it changed for 24 h ({} so far); remove it yourself if it is dead",
          join(parts_.parent, left.names[0]), left.who, minutes(left.unchanged_seconds)));
    }
  }
}

void Claim::remove_leftovers_of(const std::string& token) {
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
    file_system_->remove_all(path(kind));  // the record last: it tells that the others are dead's
  }
}

void Claim::check() const {
  std::optional<ClaimRecord> record;
  try {
    record = read_claim_record(*file_system_, lock_path());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    // Removed by hand, and nobody else has it; unless another claim moved it aside, and is done.
    if (file_system_->status(beside(Aside::owner)).kind == PathKind::missing) return;
  }
  if (record && record->token == record_.token) return;
  fail(ErrorKind::busy, "{} was taken over by {}, which took this process for dead", target_,
       record ? record->describe() : "another process");
}

}  // namespace ferry
