#include "ckpt/store/retention.h"

#include <algorithm>
#include <map>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/leftovers.h"

namespace ferry {
namespace {

constexpr int kIterationDepth = 2;  // an iteration, its rank folders

void check(const Retention& retention) {
  if (!retention.keep_last && !retention.keep_every) {
    fail(ErrorKind::invalid, "nothing says what to keep; give {}, {} or both",
         option("keep_last", "N"), option("keep_every", "K"));
  }
  const auto require = [](const std::optional<int64_t>& number, std::string_view name) {
    if (number && *number < 1) fail(ErrorKind::invalid, "{} must be at least 1", option(name));
  };
  require(retention.keep_last, "keep_last");
  require(retention.keep_every, "keep_every");
}

class Decider {
 public:
  Decider(const FileSystem& file_system, const RunFolder& run, const Retention& retention,
          const IterationChecks& checks)
      : file_system_(file_system), run_(run), retention_(retention), checks_(checks) {}

  std::vector<Retained> decide() {
    for (const IterationFolder& folder : run_.iterations) {
      const std::string path = join(run_.path, folder.name);
      decisions_.push_back(
          {folder, false, checks_.reason_to_stay ? checks_.reason_to_stay(path) : ""});
    }
    find_last_good();
    find_links();
    for (Retained& each : decisions_) {
      if (each.reason.empty()) each.reason = why_stays(each.folder);
      if (!each.reason.empty()) continue;
      each.goes = true;
      each.reason = each.folder.complete() ? "not kept by any option"
                                           : "unfinished (" + each.folder.unfinished() +
                                                 "), older than the last good one";
    }
    return std::move(decisions_);
  }

 private:
  // From the latest down, as many good ones as are to stay, at least one.
  void find_last_good() {
    const int64_t count = retention_.keep_last.value_or(1);
    int64_t good = 0;
    for (auto each = decisions_.rbegin(); each != decisions_.rend() && good < count; ++each) {
      if (!each->reason.empty()) continue;
      if (!each->folder.iteration || !each->folder.complete()) continue;
      const std::string problem = problem_of(each->folder);
      if (!problem.empty()) {
        each->reason = "not good: " + problem;
        continue;
      }
      if (++good == 1) last_good_ = *each->folder.iteration;
      if (good == 1 && count == 1) {
        each->reason = "the last good one";
      } else {
        each->reason = fmt::format("one of the last {}", count);
      }
    }
  }

  // What a link of the run folder names, an iteration's or any other (`best`), is kept by it.
  void find_links() {
    for (const std::string& name : file_system_.list(run_.path)) {
      const std::string path = join(run_.path, name);
      const PathStatus status = file_system_.status(path);
      if (status.link && status.kind == PathKind::folder) {
        links_.emplace(file_system_.real_path(path), name);
      }
    }
  }

  std::string link_to(const IterationFolder& folder) const {
    if (links_.empty() || is_link(folder)) return "";
    const auto link = links_.find(file_system_.real_path(join(run_.path, folder.name)));
    return link == links_.end() ? "" : link->second;
  }

  std::string problem_of(const IterationFolder& folder) const {
    const std::string path = join(run_.path, folder.name);
    std::string problem;
    if (checks_.problem_of) problem = checks_.problem_of(path);
    if (problem.empty() && !last_good_ && checks_.problem_of_last) {
      problem = checks_.problem_of_last(path);
    }
    return problem;
  }

  std::string why_stays(const IterationFolder& folder) const {
    if (!folder.iteration) return "release";
    if (tracker_names(folder)) return "the tracker names it";
    if (const std::string link = link_to(folder); !link.empty()) return link + " links to it";
    if (!folder.complete()) return why_unfinished_stays(folder);
    if (retention_.keep_every && *folder.iteration % *retention_.keep_every == 0) {
      return fmt::format("divisible by {}", *retention_.keep_every);
    }
    if (is_link(folder)) return "a link";
    return last_good_ ? "" : "no iteration is known to be good";
  }

  std::string why_unfinished_stays(const IterationFolder& folder) const {
    const std::string text = "unfinished (" + folder.unfinished() + ")";
    if (!retention_.unfinished) return text;
    if (is_link(folder)) return text + ", a link";
    if (!last_good_ || *folder.iteration >= *last_good_) {
      return text + ", not older than the last good one";
    }
    const std::string path = join(run_.path, folder.name);
    const std::string good = join(run_.path, run_.find(*last_good_)->name);
    if (newest_change(file_system_, path, kIterationDepth) >
        newest_change(file_system_, good, kIterationDepth)) {
      return text + ", changed after the last good one";
    }
    return {};
  }

  bool tracker_names(const IterationFolder& folder) const {
    return run_.tracker.state == Tracker::State::iteration &&
           run_.tracker.iteration == *folder.iteration;
  }

  bool is_link(const IterationFolder& folder) const {
    return file_system_.status(join(run_.path, folder.name)).link;
  }

  const FileSystem& file_system_;
  const RunFolder& run_;
  const Retention& retention_;
  const IterationChecks& checks_;
  std::vector<Retained> decisions_;
  std::map<std::string, std::string> links_;  // their names, by where they lead
  std::optional<int64_t> last_good_;
};

}  // namespace

std::vector<Retained> decide(const FileSystem& file_system, const RunFolder& run,
                             const Retention& retention, const IterationChecks& checks) {
  check(retention);
  return Decider(file_system, run, retention, checks).decide();
}

}  // namespace ferry
