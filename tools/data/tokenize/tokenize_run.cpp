#include "tools/data/tokenize/tokenize_run.h"

#include <algorithm>
#include <chrono>

#include "ckpt/base/error.h"
#include "tools/data/tokenize/in_order.h"

namespace ferry::tool {
namespace {

using Clock = std::chrono::steady_clock;

class TokenizeRun {
 public:
  TokenizeRun(std::shared_ptr<const FileSystem> file_system, const TextTokenizer& tokenizer,
              const TokenizePlan& plan, Journal* journal, const TokenizeWatch& watch)
      : file_system_(std::move(file_system)),
        tokenizer_(tokenizer),
        plan_(plan),
        journal_(journal),
        watch_(watch) {
    if (journal_ && journal_->last()) state_ = *journal_->last();
    result_.went_on = journal_ && journal_->last();
  }

  TokenizeResult run() {
    open_writers();
    try {
      for (; state_.partition < plan_.encode.partitions; ++state_.partition) {
        run_pass();
        state_.at = {};
        bytes_of_passes_ += bytes_read_;
      }
    } catch (...) {
      leave_journal();
      throw;
    }
    commit();
    result_.counts = state_.counts;
    return std::move(result_);
  }

 private:
  void open_writers() {
    for (size_t k = 0; k < plan_.prefixes.size(); ++k) {
      std::optional<WorkFolder> work;
      if (journal_) work = WorkFolder{journal_->path(), std::to_string(k), {}};
      if (result_.went_on) {
        work->go_on = state_.outputs.at(k);
        if (is_in_place(k, *work)) {
          writers_.push_back(nullptr);
          continue;
        }
      }
      writers_.push_back(std::make_unique<IndexedDatasetWriter>(
          file_system_, plan_.prefixes[k], plan_.encode.type, plan_.overwrite, std::move(work)));
    }
    last_journal_ = Clock::now();
  }

  // Whether a run that died between its last steps had put a pair in place; what it had moved of
  // one is moved back.
  bool is_in_place(size_t k, const WorkFolder& work) const {
    const std::string base = join(work.path, work.name);
    const auto is_missing = [&](const std::string& path) {
      return file_system_->status(path).kind == PathKind::missing;
    };
    if (!is_missing(base + ".bin")) return false;
    if (is_missing(base + ".idx")) return true;
    file_system_->rename(plan_.prefixes[k] + ".bin", base + ".bin");
    return false;
  }

  void run_pass() {
    std::atomic<bool> stop{false};
    bytes_read_ = 0;
    LineReader reader(file_system_, plan_.inputs, plan_.ranges, plan_.reader, state_.at,
                      bytes_read_, stop);
    EncodeOptions options = plan_.encode;
    options.partition = state_.partition;
    const InOrderLimits limits{
        2 * static_cast<size_t>(plan_.workers) + 2,
        std::max<uint64_t>(32 << 20,
                           plan_.reader.piece_bytes * static_cast<uint64_t>(4 * plan_.workers))};
    InOrder<TextPiece, EncodedPiece> pipeline(limits, stop);
    pipeline.run(
        plan_.workers, [&](TextPiece& piece) { return reader.next(piece); },
        [](const TextPiece& piece) { return piece.text.size(); },
        [&] {
          const auto encoder =
              std::make_shared<PieceEncoder>(tokenizer_, options, plan_.inputs, *file_system_);
          return [encoder](TextPiece& piece) {
            EncodedPiece encoded = encoder->encode(piece);
            piece.text = {};
            return encoded;
          };
        },
        [&](EncodedPiece& encoded) { use(encoded); }, [&] { watch_.check(); });
  }

  void use(EncodedPiece& encoded) {
    is_between_pieces_ = false;
    for (size_t k = 0; k < writers_.size(); ++k) writers_[k]->add(encoded.documents[k]);
    state_.counts.add(encoded.counts);
    state_.at = encoded.end;
    is_between_pieces_ = true;
    watch_.piece_done(state_.counts, bytes_of_passes_ + bytes_read_);
    const std::chrono::duration<double> since = Clock::now() - last_journal_;
    if (journal_ && since.count() >= plan_.journal_seconds) write_journal();
  }

  void write_journal() {
    state_.outputs.resize(writers_.size());
    for (size_t k = 0; k < writers_.size(); ++k) {
      if (writers_[k]) state_.outputs[k] = writers_[k]->sync();
    }
    journal_->write(state_);
    last_journal_ = Clock::now();
  }

  // Whatever stopped the run is what is to be told. Writers that hold a part of a piece stand
  // nowhere that a run could go on from: then what the journal said before stays.
  void leave_journal() noexcept {
    if (!journal_ || !is_between_pieces_) return;
    try {
      write_journal();
    } catch (...) {
      // What was written before stays good.
    }
  }

  void commit() {
    if (journal_) {
      write_journal();
    } else {
      for (const auto& writer : writers_) state_.outputs.push_back(writer->written());
    }
    for (const auto& writer : writers_) {
      if (writer) writer->commit();
    }
    writers_.clear();
    if (journal_) journal_->remove();
    result_.outputs = state_.outputs;
  }

  std::shared_ptr<const FileSystem> file_system_;
  const TextTokenizer& tokenizer_;
  const TokenizePlan& plan_;
  Journal* journal_;
  const TokenizeWatch& watch_;
  JournalEntry state_;
  TokenizeResult result_;
  std::vector<std::unique_ptr<IndexedDatasetWriter>> writers_;
  std::atomic<uint64_t> bytes_read_{0};  // of this pass
  uint64_t bytes_of_passes_ = 0;         // of those before
  Clock::time_point last_journal_;
  bool is_between_pieces_ = true;
};

}  // namespace

TokenizeResult tokenize(std::shared_ptr<const FileSystem> file_system,
                        const TextTokenizer& tokenizer, const TokenizePlan& plan, Journal* journal,
                        const TokenizeWatch& watch) {
  return TokenizeRun(std::move(file_system), tokenizer, plan, journal, watch).run();
}

}  // namespace ferry::tool
