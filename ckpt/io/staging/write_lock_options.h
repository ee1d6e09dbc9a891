// What to do where another writer locks the same target.
#pragma once

namespace ferry {

struct WriteLockOptions {
  bool take_over = false;   // a writer that cannot be judged is taken for dead at once
  double wait_seconds = 0;  // for a living writer to be done
  /// Only to remove the target, or leftovers next to it: writers wait until that is done, others
  /// that remove do not.
  bool to_remove = false;
};

}  // namespace ferry
