#include <algorithm>
#include <new>
#include <optional>
#include <utility>

#include "ckpt/group/group.h"
#include "ckpt/group/wire.h"

namespace ferry {
namespace {

enum class Outcome : uint64_t { done, failed };

std::string failure(ErrorKind kind, std::string_view message) {
  return Packer().choice(Outcome::failed).choice(kind).text(message).take();
}

std::string done(std::string_view result) {
  return Packer().choice(Outcome::done).text(result).take();
}

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return done(work());
  } catch (const Error& error) {
    return failure(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return failure(ErrorKind::exhausted, "out of memory");
  } catch (const std::exception& error) {
    return failure(ErrorKind::internal, error.what());
  } catch (...) {
    return failure(ErrorKind::internal, "an unknown exception");
  }
}

// The error of the first rank whose work failed, if there is one; else leaves what the ranks' work
// returned in `outcomes`.
std::optional<SharedError> unpack_outcomes(std::vector<std::string>& outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    Unpacker outcome(outcomes[rank]);
    if (outcome.choice(Outcome::failed) == Outcome::done) {
      std::string result = outcome.text();
      outcome.finish();
      outcomes[rank] = std::move(result);
      continue;
    }
    const ErrorKind kind = outcome.error_kind();
    const std::string message = outcome.text();
    outcome.finish();
    const bool all_alike =
        std::all_of(outcomes.begin() + static_cast<std::ptrdiff_t>(rank), outcomes.end(),
                    [&](const std::string& other) { return other == outcomes[rank]; });
    if (rank == 0 && all_alike) return SharedError(kind, message);
    return SharedError(kind, fmt::format("rank {}: {}", rank, message));
  }
  return std::nullopt;
}

// The error of an outcome, if it is one.
std::optional<SharedError> error_in(const std::string& packed) {
  Unpacker outcome(packed);
  if (outcome.choice(Outcome::failed) == Outcome::done) return std::nullopt;
  const ErrorKind kind = outcome.error_kind();
  return SharedError(kind, outcome.text());
}

// What rank 0's work returned, in place of its outcome; or its error.
std::optional<SharedError> take_result(const Group& group, std::string& outcome) {
  if (const auto failed = error_in(outcome)) {
    if (group.size() == 1) return failed;
    return SharedError(failed->kind(), fmt::format("rank 0: {}", failed->what()));
  }
  Unpacker unpacker(outcome);
  unpacker.choice(Outcome::failed);
  std::string result = unpacker.text();
  outcome = std::move(result);
  return std::nullopt;
}

}  // namespace

std::vector<std::string> together(Group& group, const std::function<std::string()>& work) {
  std::vector<std::string> results;
  const auto failed = or_abort(group, [&] {
    results = group.exchange(outcome_of(work));
    return unpack_outcomes(results);
  });
  if (failed) throw SharedError(*failed);
  return results;
}

std::vector<std::string> gather_together(Group& group, const std::function<std::string()>& work) {
  std::vector<std::string> results;
  const auto failed = or_abort(group, [&] {
    results = group.gather(outcome_of(work));
    std::string verdict;
    if (group.rank() == 0) {
      const auto failed_rank = unpack_outcomes(results);
      verdict = failed_rank ? failure(failed_rank->kind(), failed_rank->what()) : done({});
    }
    return error_in(group.broadcast(std::move(verdict)));
  });
  if (failed) throw SharedError(*failed);
  return results;
}

std::string from_first_together(Group& group, const std::function<std::string()>& work) {
  std::string result;
  const auto failed = or_abort(group, [&] {
    result = group.broadcast(group.rank() == 0 ? outcome_of(work) : std::string());
    return take_result(group, result);
  });
  if (failed) throw SharedError(*failed);
  return result;
}

std::string scatter_together(Group& group, const std::function<std::vector<std::string>()>& work) {
  std::string result;
  const auto failed = or_abort(group, [&] {
    std::vector<std::string> parts;
    if (group.rank() == 0) {
      const std::string outcome = outcome_of([&] {
        for (const std::string& part : work()) parts.push_back(done(part));
        return std::string();
      });
      if (error_in(outcome)) parts.assign(static_cast<size_t>(group.size()), outcome);
    }
    result = group.scatter(std::move(parts));
    return take_result(group, result);
  });
  if (failed) throw SharedError(*failed);
  return result;
}

std::vector<Digest> digests_together(Group& group, const std::vector<uint32_t>& owners,
                                     const std::function<std::vector<Digest>()>& work) {
  const std::vector<std::string> packed = together(group, [&] {
    Packer packer;
    for (const Digest& digest : work()) packer.number(digest.high).number(digest.low);
    return packer.take();
  });
  return or_abort(group, [&] {
    std::vector<Unpacker> ranks(packed.begin(), packed.end());
    std::vector<Digest> digests;
    for (const uint32_t owner : owners) {
      const uint64_t high = ranks.at(owner).number();
      digests.push_back({high, ranks[owner].number()});
    }
    return digests;
  });
}

}  // namespace ferry
