#include "ckpt/io/staging/lock_record.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>

#include "ckpt/base/error.h"

namespace ferry {
namespace {

constexpr std::array<std::string_view, 5> kPrefixes{
    ".ferry-lock.", ".ferry-owner.", ".ferry-partial.", ".ferry-old.", ".ferry-trash."};
constexpr std::string_view kFirstLine = "ferry lock 1";
constexpr uint64_t kRecordLimit = 4096;
constexpr size_t kTokenLength = 16;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string encoded(std::string_view name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool before_digit = i + 1 < name.size() && is_digit(name[i + 1]);
    const bool parts_number = before_digit && (c == '-' || c == '_' || c == '=');
    if (c == '%' || parts_number) {
      out += fmt::format("%{:02X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const char* end = text.data() + i + 3;
    if (std::from_chars(text.data() + i + 1, end, code, 16).ptr != end) return std::nullopt;
    out += static_cast<char>(code);
    i += 2;
  }
  return out;
}

// Whether a name stays inside its folder.
bool is_path_component(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\0", 2)) == std::string_view::npos;
}

bool is_token(std::string_view text) {
  return text.size() == kTokenLength &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(value) : std::nullopt;
}

// Texts of other processes are shown and compared only.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) out += c > ' ' && c <= '~' ? c : '?';
  return out.empty() ? "?" : out;
}

bool set_field(LockRecord& record, std::string_view key, std::string_view value) {
  const auto set = [&](int64_t& field) {
    const auto parsed = number(value);
    if (parsed) field = *parsed;
    return parsed.has_value();
  };
  if (key == "host") return record.owner.host = value, true;
  if (key == "boot") return record.owner.boot = value, true;
  if (key == "namespace") return record.owner.pid_namespace = value, true;
  if (key == "process") return set(record.owner.process);
  if (key == "started") return set(record.owner.started);
  if (key == "since") return set(record.since_seconds);
  if (key == "locked") return record.locked = value == "yes", true;
  if (key == "removes") return record.removes = value == "yes", true;
  if (key == "token") return record.token = value, is_token(value);
  return true;  // of a later release
}

}  // namespace

std::string aside_name(Aside kind, std::string_view target_name, std::string_view token) {
  std::string name(kPrefixes[static_cast<size_t>(kind)]);
  name += encoded(target_name);
  if (kind != Aside::lock) name.append(".").append(token);
  return name;
}

std::optional<AsideName> parse_aside(std::string_view name) {
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    if (!name.starts_with(kPrefixes[i])) continue;
    AsideName aside;
    aside.kind = static_cast<Aside>(i);
    std::string_view rest = name.substr(kPrefixes[i].size());
    if (aside.kind != Aside::lock) {
      const size_t dot = rest.rfind('.');
      if (dot == std::string_view::npos || !is_token(rest.substr(dot + 1))) return std::nullopt;
      aside.token = rest.substr(dot + 1);
      rest = rest.substr(0, dot);
    }
    const auto target = decoded(rest);
    if (!target || !is_path_component(*target)) return std::nullopt;
    if (aside_name(aside.kind, *target, aside.token) != name) return std::nullopt;
    aside.target_name = *target;
    return aside;
  }
  return std::nullopt;
}

std::string LockRecord::to_text() const {
  return fmt::format(
      "{}\nhost {}\nprocess {}\nstarted {}\nboot {}\nnamespace {}\nsince {}\nlocked {}\n"
      "removes {}\ntoken {}\n",
      kFirstLine, owner.host, owner.process, owner.started, owner.boot, owner.pid_namespace,
      since_seconds, locked ? "yes" : "no", removes ? "yes" : "no", token);
}

std::string LockRecord::describe() const {
  std::string text = fmt::format("process {} on {}", owner.process, printable(owner.host));
  const auto since = static_cast<std::time_t>(since_seconds);
  std::tm time{};
  if (since_seconds > 0 && since_seconds < (int64_t{1} << 40) && ::gmtime_r(&since, &time)) {
    text += fmt::format(" since {:%Y-%m-%d %H:%M:%S} UTC", time);
  }
  return text;
}

std::optional<LockRecord> read_lock_record(const FileSystem& file_system, const std::string& path) {
  const PathStatus status = file_system.status(path);
  if (status.kind == PathKind::missing) fail(ErrorKind::not_found, "{} is not there", path);
  if (status.kind != PathKind::file || status.bytes > kRecordLimit) return std::nullopt;
  const std::string text = read_file(file_system, path, kRecordLimit);
  LockRecord record;
  size_t begin = text.find('\n');
  if (std::string_view(text).substr(0, begin) != kFirstLine) return std::nullopt;
  while (begin != std::string::npos && begin + 1 < text.size()) {
    const size_t end = std::min(text.find('\n', begin + 1), text.size());
    const std::string_view line = std::string_view(text).substr(begin + 1, end - begin - 1);
    const size_t space = std::min(line.find(' '), line.size());
    const std::string_view value = line.substr(std::min(space + 1, line.size()));
    if (!set_field(record, line.substr(0, space), value)) return std::nullopt;
    begin = end;
  }
  return record.token.empty() ? std::nullopt : std::optional(record);
}

std::string read_lock_token(const FileSystem& file_system, const std::string& path) {
  try {
    const auto record = read_lock_record(file_system, path);
    return record ? record->token : std::string();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::not_found) throw;
    return {};
  }
}

}  // namespace ferry
