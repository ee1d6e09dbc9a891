#include "tools/data/tokenize/journal.h"

#include <nlohmann/json.hpp>

#include "ckpt/base/error.h"
#include "ckpt/io/staging/publish.h"
#include "tools/terminal/output.h"

namespace ferry::tool {
namespace {

using nlohmann::json;

constexpr uint64_t kLongestJournal = 1 << 28;  // bytes: settings name all inputs
constexpr const char* kName = "journal.json";

json json_of(const JournalEntry& entry) {
  json outputs = json::array(), bad = json::array();
  for (const WrittenTokens& one : entry.outputs) {
    outputs.push_back({one.token_bytes, one.sequences, one.documents});
  }
  const EncodeCounts& counts = entry.counts;
  for (const BadLine& one : counts.first_bad) bad.push_back({one.place, one.problem});
  return {
      {"at", {entry.at.range, entry.at.byte, entry.at.line, entry.at.line_of_range}},
      {"partition", entry.partition},
      {"outputs", outputs},
      {"counts",
       {counts.lines, counts.blank, counts.bad, counts.characters, counts.tokens, counts.empty}},
      {"first_bad", bad}};
}

JournalEntry entry_of(const json& stored) {
  JournalEntry entry;
  const json &at = stored.at("at"), &counts = stored.at("counts");
  entry.at = {at.at(0), at.at(1), at.at(2), at.at(3)};
  entry.partition = stored.at("partition");
  for (const json& one : stored.at("outputs")) {
    entry.outputs.push_back({one.at(0), one.at(1), one.at(2)});
  }
  entry.counts = {
      counts.at(0), counts.at(1), counts.at(2), counts.at(3), counts.at(4), counts.at(5), {}};
  for (const json& one : stored.at("first_bad")) {
    entry.counts.first_bad.push_back({one.at(0), one.at(1)});
  }
  return entry;
}

}  // namespace

std::string Journal::path_of(const std::string& prefix) { return prefix + ".unfinished"; }

Journal::Journal(std::shared_ptr<const FileSystem> file_system, const std::string& prefix,
                 const json& settings)
    : file_system_(std::move(file_system)), path_(path_of(prefix)), settings_(settings.dump()) {
  lock_ = std::make_unique<WriteLock>(file_system_, path_);
  if (file_system_->status(path_).kind == PathKind::missing) file_system_->create_folder(path_);
  if (file_system_->status(join(path_, kName)).kind != PathKind::missing) read(settings);
}

Journal::~Journal() {
  if (last_) return;
  try {  // a run that came nowhere leaves nothing
    file_system_->remove_all(path_);
  } catch (const std::exception&) {
    // It stays, empty.
  }
}

void Journal::read(const json& settings) {
  const std::string file = join(path_, kName);
  const json stored = json::parse(read_file(*file_system_, file, kLongestJournal), nullptr, false);
  const auto fail_damaged = [&] {
    fail(ErrorKind::corrupt,
         "{} cannot be read as the journal of an interrupted run; remove {} and "
         "begin anew",
         file, path_);
  };
  if (!stored.is_object() || !stored.contains("settings")) fail_damaged();
  const json& before = stored.at("settings");
  for (const auto& [key, value] : settings.items()) {
    if (before.contains(key) && before.at(key) == value) continue;
    fail(ErrorKind::mismatch,
         "{} is of a run with other '{}' (an option, or files that changed since); give what that "
         "run had, or remove the folder and begin anew",
         path_, key);
  }
  try {
    last_ = entry_of(stored.at("entry"));
  } catch (const json::exception&) {
    fail_damaged();
  }
}

void Journal::write(const JournalEntry& entry) {
  const json stored = {{"settings", json::parse(settings_)}, {"entry", json_of(entry)}};
  publish_file(*file_system_, *lock_, join(path_, kName), json_text(stored), Existing::replace);
  last_ = entry;
}

void Journal::remove() {
  file_system_->remove_all(path_);
  last_.reset();
}

}  // namespace ferry::tool
