// The sole right to write one target (a folder or a file), among all ferry processes that share the
// file system, and what tells the leftovers of the living from those of the dead.
//
// leftovers.h says how a writer's life is judged. The claim of a dead one is taken over at once;
// that of one which cannot be judged (of another host, where locks do not show) once nothing of it
// changed for kTakeOverSeconds. Should it live after all, its commit fails and says who took over,
// and what it wrote stays aside for kRemoveSeconds. So one writer wins on any file system; what
// depends on locks that every host sees is only how early the other one learns it. LockableFile
// says where these are. docs/decisions/0023-claims.md has the reasons.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"
#include "ckpt/io/staging/claim_options.h"
#include "ckpt/io/staging/claim_record.h"

namespace ferry {

inline constexpr int64_t kTakeOverSeconds = 15 * 60;
/// How long a writer waits for one that only removes, whatever ClaimOptions::wait_seconds says: a
/// prune beside a training must not make its save fail, and large folders take their time to go.
inline constexpr double kRemovalWaitSeconds = 10 * 60;

class Claim {
 public:
  /// Takes the right and removes what dead writers of the target left, putting the former target
  /// back where they died between two renames. busy when a living process has it to write, one that
  /// cannot be judged, or, beyond kRemovalWaitSeconds, one that removes; the message says who and
  /// since when. The parent folder must exist.
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

  /// Removes what stands at partial_path(), where that can be: for a writer that ends with an error
  /// of its own, which is the one to tell.
  void drop_partial() const noexcept;

  /// Gives the right to the target back; what stands aside stays this claim's until it ends.
  void let_others_claim();

  /// busy when another process took the right over: what was written must not be put in place.
  void check() const;

  /// Leftovers that were kept, and why.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  struct Refusal {
    std::string message;
    double wait_seconds = 0;  // for so long a writer waits for it to pass
  };

  std::string beside(Aside kind) const;
  std::string lock_path() const;
  void write_record();
  std::optional<Refusal> try_take(const ClaimOptions& options);
  std::optional<Refusal> set_aside(const ClaimOptions& options);
  Refusal refusal_of_living(const ClaimRecord& found) const;
  void put_back(const std::string& aside);
  bool holds_lock_name() const;
  void remove_moved_record() const;
  void remove_leftovers();
  void remove_leftovers_of(const std::string& token);

  std::shared_ptr<const FileSystem> file_system_;
  std::string target_;
  SplitPath parts_;
  ClaimRecord record_;
  int64_t now_seconds_ = 0;  // by the file system's clock, when the claim began
  std::unique_ptr<LockableFile> lock_;
  std::vector<std::string> notes_;
};

}  // namespace ferry
