// What to do where another writer claims the same target.
#pragma once

namespace ferry {

struct ClaimOptions {
  bool take_over = false;   // a writer that cannot be judged is taken for dead at once
  double wait_seconds = 0;  // for a living writer to be done
  /// Only to remove the target, or what stands beside it: writers wait for it to be done, others
  /// that remove do not.
  bool to_remove = false;
};

}  // namespace ferry
