// Steps that the ranks of a group do together: all succeed, or all fail alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ckpt/base/digest.h"
#include "ckpt/base/error.h"
#include "ckpt/group/group.h"

namespace ferry {

/// What all ranks throw alike: nobody waits for anybody, and the group goes on.
class SharedError : public Error {
 public:
  using Error::Error;
};

/// Runs `work` on each rank and returns everyone's result, by rank. Where any rank's throws,
/// whatever it is, all ranks throw a SharedError: the first one's, with "rank N: " before its
/// message unless all have the same. What a rank throws outside `work` (there may be no memory for
/// its message) ends the group on all: Group::abort().
std::vector<std::string> together(Group& group, const std::function<std::string()>& work);

/// Returns work(). What it throws, other than a SharedError, is thrown on all ranks: for what a
/// rank does alone while others may wait for it.
template <typename Work>
auto or_abort(Group& group, const Work& work) {
  try {
    return work();
  } catch (const SharedError&) {
    throw;
  } catch (...) {
    abort_with_current_exception(group);
    throw;
  }
}

/// together() for results that rank 0 alone needs: it returns them by rank, others nothing.
std::vector<std::string> gather_together(Group& group, const std::function<std::string()>& work);

/// together() for work that rank 0 alone does: all return its result.
std::string from_first_together(Group& group, const std::function<std::string()>& work);

/// The same for a result of one part for each rank, which returns its own.
std::string scatter_together(Group& group, const std::function<std::vector<std::string>()>& work);

/// together() for work that returns digests of the rank's own items of a plan, by rising position.
/// Returns those of all items; `owners` has the rank of each.
std::vector<Digest> digests_together(Group& group, const std::vector<uint32_t>& owners,
                                     const std::function<std::vector<Digest>()>& work);

}  // namespace ferry
