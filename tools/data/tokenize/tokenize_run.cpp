#include "tools/data/tokenize/tokenize_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "ckpt/base/error.h"
#include "tools/data/tokenize/in_order.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kBytesOfAPartition = 512;  // in memory, without its tokens

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
      while (state_.partition < plan_.encode.partitions) run_pass();
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

  // Reads the inputs once. Documents of the first partition that is not done are written as they
  // come, those of the partitions after it wait for that in memory, as many as have room there.
  void run_pass() {
    std::atomic<bool> stop{false};
    bytes_read_ = 0;
    LineReader reader(file_system_, plan_.inputs, plan_.ranges, plan_.reader, state_.at,
                      bytes_read_, stop);
    EncodeOptions options = plan_.encode;
    options.first_partition = state_.partition;
    options.end_partition = &end_partition_;
    const int64_t left = plan_.encode.partitions - state_.partition;
    // What a run before had read of the others is gone.
    const bool goes_on = state_.at.range > 0 || state_.at.byte > 0;
    end_partition_ = state_.partition + (goes_on ? 1 : std::min(left, partitions_of_pass_));
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
    const int64_t end = end_partition_;
    if (!goes_on) note_passes(end - state_.partition, left);
    end_partition();
    while (state_.partition < end) {
      write(held_[state_.partition]);
      end_partition();
      watch_.check();
    }
    held_.clear();
    held_counts_ = {};
    held_bytes_ = 0;
  }

  void end_partition() {
    state_.at = {};
    ++state_.partition;
    is_between_pieces_ = true;
  }

  void note_passes(int64_t done, int64_t left) {
    if (done < left && partitions_of_pass_ == INT64_MAX && watch_.note) {
      watch_.note(fmt::format(
          "note: the tokens of --partitions {} take more than {} of memory: the inputs are read "
          "{} times",
          plan_.encode.partitions, human_bytes(plan_.held_bytes), (left + done - 1) / done));
    }
    partitions_of_pass_ = std::min(partitions_of_pass_, done);
  }

  void use(EncodedPiece& encoded) {
    for (auto& [partition, documents] : encoded.partitions) {
      if (partition == state_.partition) {
        write(documents);
      } else if (partition < end_partition_) {
        hold(partition, documents);
      }
    }
    while (held_bytes_ > plan_.held_bytes && end_partition_ > state_.partition + 1) {
      let_go(--end_partition_);
    }
    state_.at = encoded.end;
    is_between_pieces_ = true;
    EncodeCounts counts = state_.counts;
    counts.add(held_counts_);
    watch_.piece_done(counts, bytes_done());
    const std::chrono::duration<double> since = Clock::now() - last_journal_;
    if (journal_ && since.count() >= plan_.journal_seconds) write_journal();
  }

  void write(const EncodedDocuments& documents) {
    is_between_pieces_ = false;
    for (size_t k = 0; k < documents.of_keys.size(); ++k) writers_[k]->add(documents.of_keys[k]);
    state_.counts.add(documents.counts);
  }

  static uint64_t bytes_of(const EncodedDocuments& documents) {
    uint64_t bytes = 0;
    for (const StoredDocuments& one : documents.of_keys) {
      bytes += one.tokens.size() + sizeof(int32_t) * (one.lengths.size() + one.sequences.size());
    }
    return bytes;
  }

  void hold(int64_t partition, const EncodedDocuments& documents) {
    const auto [found, is_new] = held_.try_emplace(partition);
    EncodedDocuments& held = found->second;
    held.of_keys.resize(documents.of_keys.size());
    for (size_t k = 0; k < held.of_keys.size(); ++k) {
      held.of_keys[k].append(documents.of_keys[k]);
    }
    held.counts.add(documents.counts);
    held_counts_.lines += documents.counts.lines;
    held_counts_.characters += documents.counts.characters;
    held_bytes_ += bytes_of(documents) + (is_new ? kBytesOfAPartition : 0);
  }

  void let_go(int64_t partition) {
    const auto found = held_.find(partition);
    if (found == held_.end()) return;
    held_counts_.lines -= found->second.counts.lines;
    held_counts_.characters -= found->second.counts.characters;
    held_bytes_ -= bytes_of(found->second) + kBytesOfAPartition;
    held_.erase(found);
  }

  uint64_t bytes_done() const {
    const auto of_pass = static_cast<double>(end_partition_ - state_.partition);
    const uint64_t all = input_bytes(plan_);
    if (all == 0) return bytes_read_;
    const double read = static_cast<double>(bytes_read_) / static_cast<double>(all);
    return static_cast<uint64_t>(static_cast<double>(all) *
                                 (static_cast<double>(state_.partition) + of_pass * read) /
                                 static_cast<double>(plan_.encode.partitions));
  }

  void write_journal() {
    state_.outputs.resize(writers_.size());
    for (size_t k = 0; k < writers_.size(); ++k) {
      if (writers_[k]) state_.outputs[k] = writers_[k]->sync();
    }
    journal_->write(state_);
    last_journal_ = Clock::now();
  }

  // Report what stopped the run, not what fails here. A run cannot go on from writers that hold
  // part of a piece: then the journal keeps its last entry.
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
  std::atomic<uint64_t> bytes_read_{0};       // of this pass
  std::atomic<int64_t> end_partition_{0};     // of this pass: those before it are done when it is
  int64_t partitions_of_pass_ = INT64_MAX;    // as many have room in memory
  std::map<int64_t, EncodedDocuments> held_;  // partitions after the one that is written
  EncodeCounts held_counts_;                  // what progress shows of theirs
  uint64_t held_bytes_ = 0;
  Clock::time_point last_journal_;
  bool is_between_pieces_ = true;
};

}  // namespace

uint64_t input_bytes(const TokenizePlan& plan) {
  uint64_t bytes = 0;
  for (const InputRange& range : plan.ranges) {
    const TextInput& input = plan.inputs[range.input];
    if (!input.is_file) return 0;
    bytes += std::min(range.end, input.bytes) - range.begin;
  }
  return bytes;
}

TokenizeResult tokenize(std::shared_ptr<const FileSystem> file_system,
                        const TextTokenizer& tokenizer, const TokenizePlan& plan, Journal* journal,
                        const TokenizeWatch& watch) {
  return TokenizeRun(std::move(file_system), tokenizer, plan, journal, watch).run();
}

}  // namespace ferry::tool
