// The sole right to write one target (a folder or a file), among all ferry processes that share the
// file system, and what tells the leftovers of the living from those of the dead.
//
// A claim's life is judged by the kernel's lock on its file (LockableFile), and where there are no
// locks by host, process number and start time. A writer on another host lives when its lock shows;
// else it cannot be judged: its claim is taken over once nothing of it changed for kTakeOverSeconds
// (should it live after all, its commit fails and says who took over), and its leftovers are
// removed after kRemoveSeconds. So one writer wins on any file system; what depends on locks that
// every host sees is only how early the other one learns it. LockableFile says where these are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/claim_record.h"
#include "ckpt/io/file_system.h"

namespace ferry {

inline constexpr int64_t kTakeOverSeconds = 15 * 60;
inline constexpr int64_t kRemoveSeconds = 24 * 3600;

struct ClaimOptions {
  bool take_over = false;   // a writer that cannot be judged is taken for dead at once
  double wait_seconds = 0;  // for a living writer to be done
};

class Claim {
 public:
  /// Takes the right and removes what dead writers of the target left, putting the former target
  /// back where they died between two renames. busy when a living process has it, or one that
  /// cannot be judged; the message says who and since when. The parent folder must exist.
  Claim(std::shared_ptr<const FileSystem> file_system, std::string target,
        const ClaimOptions& options = {});
  ~Claim();  // gives the right back; what stands aside is left
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;

  const std::string& target() const noexcept { return target_; }
  /// Where to write, to put the former target, to move what is to be removed: names beside the
  /// target that no other claim uses.
  std::string partial_path() const { return beside(Aside::partial); }
  std::string old_path() const { return beside(Aside::old); }
  std::string trash_path() const { return beside(Aside::trash); }

  /// busy when another process took the right over: what was written must not be put in place.
  void check() const;

  /// Leftovers that were kept, and why.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  std::string beside(Aside kind) const;
  std::string lock_path() const;
  void write_record();
  bool try_take(const ClaimOptions& options, std::string* who);
  bool set_aside(const ClaimOptions& options, std::string* who);
  void remove_leftovers();
  void remove_leftovers_of(const std::string& token);
  int64_t unchanged_seconds(const std::string& token, const std::string& record_path) const;

  std::shared_ptr<const FileSystem> file_system_;
  std::string target_;
  SplitPath parts_;
  ClaimRecord record_;
  int64_t now_seconds_ = 0;  // by the file system's clock, when the claim began
  std::unique_ptr<LockableFile> lock_;
  std::vector<std::string> notes_;
};

/// Whether the owner of the record in file `path` lives.
Life life_of(const FileSystem& file_system, const std::string& path, const ClaimRecord& record);

}  // namespace ferry
