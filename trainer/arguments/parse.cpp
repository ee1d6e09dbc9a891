#include "trainer/arguments/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ckpt/base/error.h"
#include "ckpt/megatron/config/yaml.h"
#include "trainer/arguments/argument_row.h"

namespace ferry {
namespace {

constexpr uint64_t kMostFileBytes = 1 << 20;
constexpr int kMostFiles = 16;  // a file may name a file

bool takes_value(ArgumentKind kind) {
  return kind != ArgumentKind::flag && kind != ArgumentKind::negated &&
         kind != ArgumentKind::either;
}

bool takes_several(ArgumentKind kind) {
  return kind == ArgumentKind::integers || kind == ArgumentKind::reals ||
         kind == ArgumentKind::texts;
}

// "--name"; not "-1", "-0.5", "-" or a text with blanks.
bool is_flag(std::string_view word) {
  if (word.size() < 2 || word[0] != '-') return false;
  const bool number =
      word.find_first_not_of("-+.0123456789eE") == std::string_view::npos && word[1] != '-';
  return !number && word.find(' ') == std::string_view::npos;
}

// What a launcher is given before the program's own words.
bool is_of_torchrun(std::string flag) {
  constexpr std::string_view kFlags[] = {
      "--nproc-per-node", "--nnodes",        "--node-rank", "--master-addr", "--master-port",
      "--rdzv-backend",   "--rdzv-endpoint", "--rdzv-id",   "--standalone",  "--max-restarts",
      "--no-python",      "--local-addr",    "--rdzv-conf"};
  std::ranges::replace(flag, '_', '-');
  return std::ranges::find(kFlags, flag) != std::end(kFlags);
}

class ArgumentParser {
 public:
  explicit ArgumentParser(const FileSystem& files)
      : files_(files), arguments_(default_arguments()) {}

  void take(std::span<const std::string> words) {
    for (size_t at = 0; at < words.size();) {
      const std::string& word = words[at++];
      if (word.starts_with('@')) {
        take_file(word.substr(1));
        continue;
      }
      if (!is_flag(word)) {
        fail(ErrorKind::invalid,
             "'{}' stands without the name of an argument (they all begin with --){}", word,
             files_.status(word).kind == PathKind::file
                 ? "; a file of arguments is given as @" + word
                 : "");
      }
      const size_t equals = word.find('=');
      const std::string flag = word.substr(0, equals);
      std::vector<std::string> values;
      if (equals != std::string::npos) {
        values.push_back(word.substr(equals + 1));
      } else {
        const size_t most = most_values(flag);
        while (at < words.size() && values.size() < most && !is_flag(words[at])) {
          values.push_back(words[at++]);
        }
      }
      set(flag, values, equals != std::string::npos);
    }
  }

  TrainArguments result() && { return std::move(arguments_); }

 private:
  static bool is_file_flag(std::string_view flag) {
    return flag == "--args-file" || flag == "--yaml-cfg";
  }

  static size_t most_values(const std::string& flag) {
    if (is_file_flag(flag)) return 1;
    const ArgumentRow* row = find_flag(flag);
    if (row == nullptr || !takes_value(row->kind)) return 0;
    return takes_several(row->kind) ? SIZE_MAX : 1;
  }

  void set(const std::string& flag, const std::vector<std::string>& values, bool joined) {
    const bool is_file = is_file_flag(flag);
    const ArgumentRow* row = find_flag(flag);
    if (row == nullptr && !is_file) fail_unknown(flag);
    if (!is_file && row->status == ArgumentStatus::removed && !row->is_bound()) {
      fail(ErrorKind::invalid, "{} is of older releases of Megatron-LM: {}", flag,
           "see --micro-batch-size, --tensor-model-parallel-size, --lr-warmup-fraction, "
           "--recompute-granularity");
    }
    if (!is_file && !takes_value(row->kind)) {
      if (joined) fail(ErrorKind::invalid, "{} takes no value", flag);
      const bool no = row->kind == ArgumentKind::either && flag.starts_with("--no-");
      return set_value(arguments_, *row, row->kind != ArgumentKind::negated && !no);
    }
    // argparse takes no value at all for the lists of paths.
    if (values.empty()) fail(ErrorKind::invalid, "{} wants a value behind it", flag);
    if (flag == "--args-file") return take_file(values.front());
    if (flag == "--yaml-cfg") return take_yaml(values.front());
    // A script's empty variable: a run would train for days and save nothing.
    if (row->kind == ArgumentKind::text && row->is_bound() && values.front().empty() &&
        !row->initial.empty()) {
      fail(ErrorKind::invalid, "{} is given an empty value; give one, or leave the argument out",
           flag);
    }
    set_value(arguments_, *row, parse_argument(row->kind, flag, values));
    if (row->name() == "global_batch_size") arguments_.is_global_batch_size_explicit = true;
  }

  [[noreturn]] static void fail_unknown(const std::string& flag) {
    if (is_of_torchrun(flag)) {
      fail(ErrorKind::invalid,
           "{} is an argument of torchrun, not of training: torchrun {} ... --no-python ferry "
           "train ..., or set MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE for each rank",
           flag, flag);
    }
    const std::string nearest = nearest_flag(flag);
    fail(ErrorKind::invalid, "{} is no argument of training{}{}{}", flag,
         nearest.empty() ? "" : "; the nearest is ", nearest,
         nearest.empty() ? " (ferry train --help lists them)" : "");
  }

  void take_file(const std::string& path) {
    if (++file_count_ > kMostFiles) {
      fail(ErrorKind::invalid, "{}: more than {} argument files, perhaps one names itself", path,
           kMostFiles);
    }
    take(split_words(read_file(files_, path, kMostFileBytes), path));
  }

  void take_yaml(const std::string& path) {
    const auto document = parse_yaml(read_file(files_, path, kMostFileBytes), path);
    take_mapping(document->root(), path, 0);
  }

  // Sections (language_model:, model_parallel:) hold arguments, too.
  void take_mapping(const Value& mapping, const std::string& path, int depth) {
    if (mapping.kind() != ValueKind::dict || depth > 8) {
      fail(ErrorKind::invalid, "{}: is no mapping of arguments to values", path);
    }
    std::set<std::string> names;
    for (size_t i = 0; i < mapping.pair_count(); ++i) {
      std::string name(mapping.pair_key(i).string().value_or(""));
      std::replace(name.begin(), name.end(), '-', '_');
      if (!names.insert(name).second) {
        fail(ErrorKind::invalid, "{}: {} is there with _ and with -; remove one of the two", path,
             name);
      }
      const Value value = mapping.pair_value(i);
      if (value.kind() == ValueKind::dict) {
        take_mapping(value, path, depth + 1);
        continue;
      }
      const ArgumentRow* row = find_argument(name);
      if (row == nullptr || row->flags.empty() ||
          (row->status == ArgumentStatus::removed && !row->is_bound())) {
        std::string flag = "--" + name;
        std::replace(flag.begin(), flag.end(), '_', '-');
        const std::string nearest = nearest_flag(flag);
        fail(ErrorKind::invalid, "{}: {} is no argument of training{}{}", path, name,
             nearest.empty() ? "" : "; the nearest is ", nearest);
      }
      if (value.is_none()) continue;
      set_value(arguments_, *row, read_argument(row->kind, path + ": " + name, value));
      if (name == "global_batch_size") arguments_.is_global_batch_size_explicit = true;
    }
  }

  const FileSystem& files_;
  TrainArguments arguments_;
  int file_count_ = 0;
};

}  // namespace

TrainArguments parse_arguments(std::span<const std::string> words, const FileSystem& files) {
  ArgumentParser parser(files);
  parser.take(words);
  return std::move(parser).result();
}

std::vector<std::string> split_words(std::string_view text, std::string_view path) {
  std::vector<std::string> words;
  bool in_word = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool blank = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (blank) {
      in_word = false;
      continue;
    }
    if (c == '#' && !in_word) {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c == '\\' && at + 1 < text.size() && text[at + 1] == '\n') {  // the line goes on
      ++at;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '\'' || c == '"') {
      const size_t end = text.find(c, at + 1);
      if (end == std::string_view::npos) {
        fail(ErrorKind::invalid, "{}: a quotation mark {} without its second one", path, c);
      }
      words.back() += text.substr(at + 1, end - at - 1);
      at = end;
    } else if (c == '\\' && at + 1 < text.size()) {
      words.back() += text[++at];
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string no_effect_note(const TrainArguments& arguments, bool on_gpus) {
  std::string flags;
  const ArgumentRow& attention = *find_argument("attention_backend");
  if (!is_default(arguments, attention) && !(on_gpus && has_fused_attention(arguments))) {
    flags = attention.flag();
  }
  for (const auto& [name, value] : arguments.others) {
    const ArgumentRow* row = find_argument(name);
    if (row == nullptr || row->status != ArgumentStatus::no_effect) continue;
    flags += fmt::format("{}{}", flags.empty() ? "" : ", ", row->flag());
  }
  if (flags.empty()) return flags;
  return "accepted and without effect here (they choose between Megatron-LM's kernels, services or "
         "ways to launch): " +
         flags;
}

std::string unfused_note(const TrainArguments& arguments, bool on_gpus) {
  if (!on_gpus || !has_fused_attention(arguments)) return {};
  std::string why;
  const auto add = [&](bool is_so, std::string_view reason) {
    if (is_so) why += fmt::format("{}{}", why.empty() ? "" : ", ", reason);
  };
  add(!arguments.bf16 && !arguments.fp16, "neither --bf16 nor --fp16");
  add(arguments.attention_dropout > 0,
      fmt::format("--attention-dropout {}", arguments.attention_dropout));
  add(arguments.context_parallel_size > 1,
      fmt::format("--context-parallel-size {}", arguments.context_parallel_size));
  add(arguments.seq_length.value_or(0) % 128 != 0,
      fmt::format("--seq-length {}, no multiple of 128", arguments.seq_length.value_or(0)));
  if (why.empty()) return why;
  return fmt::format(
      "--attention-backend fused: cuDNN computes no attention of this run, ferry's own kernels do: "
      "{}",
      why);
}

}  // namespace ferry
