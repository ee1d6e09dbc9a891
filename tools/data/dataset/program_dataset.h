// A dataset that a program of the user's serves, in any language, one line an item:
//
//   the program                       ferry
//   {"size": 1000}                                                   when it is ready
//                                     {"index": 5, "epoch": 1}
//   {"item": [3, 1, 4]}               any JSON; a digest of it where an item is large
//                                     {"index": 6, "epoch": 1}
//   {"item": null, "problem": "torch's generator was seeded"}        a problem that it found itself
//
// It ends when its standard input does.
#pragma once

#include <memory>
#include <string>

#include "ckpt/base/digest.h"
#include "tools/data/dataset/line_program.h"
#include "trainer/data/epochs/datasets.h"

namespace ferry::tool {

/// An item as it was written; equal when its bytes are.
struct ProgramItem {
  Digest digest;
  std::string beginning;  // for people
  bool operator==(const ProgramItem& other) const { return digest == other.digest; }
};

/// The problem that a program reports of itself: the first one, and how often.
struct ReportedProblem {
  EpochIndex at;
  std::string text;
  int64_t count = 0;
};

/// Used by one thread.
class ProgramDataset final : public MultiEpochDataset<ProgramItem> {
 public:
  /// Waits for the size. As LineProgram's functions; corrupt for a line that is none of the above.
  ProgramDataset(const std::string& command, const std::string& who, LineProgramOptions options);

  int64_t size() const noexcept override { return size_; }
  /// As the constructor.
  ProgramItem read(EpochIndex at) const override;
  const ReportedProblem& reported() const noexcept { return reported_; }

 private:
  std::string who_;
  std::unique_ptr<LineProgram> program_;
  int64_t size_ = 0;
  mutable ReportedProblem reported_;
};

}  // namespace ferry::tool
