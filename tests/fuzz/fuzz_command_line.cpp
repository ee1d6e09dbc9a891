// An input is the words of a command line of the program, each ended by a zero byte. The commands
// run here, in the same process; what would write does so under --dry-run alone.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>
#include <vector>

#include "ckpt/group/group.h"
#include "tests/fuzz/finding.h"
#include "tests/fuzz/mutator.h"
#include "tools/commands.h"
#include "tools/terminal/command.h"

namespace ferry::test {
namespace {

// Where output would be, outside the fixtures; nothing is there.
constexpr const char* kNowhere = "/nonexistent/ferry-fuzz/out";

struct Counts {
  uint64_t inputs = 0, misread = 0, done = 0;
  ~Counts() {
    std::fprintf(stderr,
                 "of %llu command lines %llu were refused by the parser and %llu carried out\n",
                 static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(misread),
                 static_cast<unsigned long long>(done));
  }
};

Counts& counts() {
  static Counts all;
  return all;
}

constexpr const char* kCommands[] = {"convert", "reshard", "inspect", "diff", "verify", "check"};

constexpr const char* kPaths[] = {"/megatron/hot_llama",
                                  "/megatron/hot_llama/iter_0000005",
                                  "/megatron/hot_mixtral",
                                  "/megatron/llama_legacy_tp2pp2",
                                  "/megatron/llama_tp2dp2_dpr",
                                  "/core/mistral",
                                  "/core/deepseek_v2_plain_queries",
                                  "/hugging_face/safetensors_shards",
                                  "/hugging_face/every_dtype",
                                  "/dcp/fsdp",
                                  "/dcp/torch_dcp",
                                  "/nemo",
                                  "/torch_file/zip.pt",
                                  "/hf_names",
                                  "/nothing"};

struct Option {
  const char* name;
  std::vector<std::string> values;       // the first half are sound; none: a flag
  std::string_view commands = "cridvk";  // that know it, by letter_of() of their names
};

const std::vector<std::string> kWholeNumbers = {"1",
                                                "2",
                                                "4",
                                                "3",
                                                "8",
                                                "1",
                                                "2",
                                                "1",
                                                "6",
                                                "0",
                                                "-1",
                                                "010",
                                                "1.5",
                                                "16777216",
                                                "16777217",
                                                "9223372036854775807",
                                                "9223372036854775808",
                                                "1e3",
                                                "",
                                                "x",
                                                "0x10",
                                                "+2",
                                                " 2"};
const std::vector<std::string> kSizes = {
    "8MiB",  "1GB", "512MiB", "1", "0", "-1GB", "1.5kB", "MiB", "99999999999999999999GB",
    "16EiB", "1e9", ""};
const std::vector<std::string> kGlobs = {"*",
                                         "decoder.*",
                                         "*norm*",
                                         "[",
                                         "[!",
                                         "",
                                         "**",
                                         "\\",
                                         "*{a,b}*",
                                         "embedding.word_embeddings.weight",
                                         "?",
                                         "[a-",
                                         "*a*a*a*a*a*a*a*a*a*a*a*a*b"};

const std::vector<Option>& options() {
  static const std::vector<Option> all = {
      {"--to",
       {"hf", "safetensors", "torch_dist", "torch", "fsdp_dtensor", "dcp", "HF", "", "0", "2"},
       "cr"},
      {"--iteration",
       {"5", "1", "release", "latest", "005", "-5", "", "5,5", "x", "5,", "99999999999999999999"},
       "cridv"},
      {"--family",
       {"llama", "mistral", "mixtral", "qwen2", "deepseek_v3", "gpt2", "bert", ""},
       "c"},
      {"--vocab-size", kWholeNumbers, "c"},
      {"--force", {}, "c"},
      {"--keep-padding", {}, "c"},
      {"--dtype", {"bf16", "fp16", "fp32", "float8_e4m3fn", "int8", "F64", "bfloat", ""}, "cr"},
      {"--tokenizer", {"/", "/nonexistent", "", "."}, "c"},
      {"--max-shard-size", kSizes, "c"},
      {"--optimizer", {}, "c"},
      {"--optimizer", {"fully_reshardable", "dp_reshardable", "legacy", "none", "x", ""}, "r"},
      {"--raw", {}, "ci"},
      {"--make-vocab-size-divisible-by", kWholeNumbers, "cr"},
      {"--core-release",
       {"0.16", "0.12", "0.19", "0.20", "0.11", "1.0", "0.", "x", "", "0.99999999999"},
       "cr"},
      {"--compress",
       {"zstd", "zstd:1", "zstd:19", "zstd:20", "zstd:", "gzip", "zstd:-1", ""},
       "cr"},
      {"--drop-unknown", {}, "c"},
      {"--base-only", {}, "c"},
      {"--tp", kWholeNumbers, "cr"},
      {"--pp", kWholeNumbers, "cr"},
      {"--vpp", kWholeNumbers, "cr"},
      {"--ep", kWholeNumbers, "cr"},
      {"--etp", kWholeNumbers, "cr"},
      {"--dp", kWholeNumbers, "cr"},
      {"--cp", kWholeNumbers, "cr"},
      {"--decoder-first-pipeline-num-layers", kWholeNumbers, "cr"},
      {"--decoder-last-pipeline-num-layers", kWholeNumbers, "cr"},
      {"--pipeline-model-parallel-layout",
       {"Ettt|tt|tL", "Et|t|t|tL", "E(t|)*4L", "(((", "", "|", "E(t|)*99999999L", "EttttL"},
       "cr"},
      {"--overwrite", {}, "cr"},
      {"--no-manifest", {}, "cr"},
      {"--integrity", {"sha256", "md5", ""}, "cr"},
      {"--memory", kSizes, "cridv"},
      {"--threads", {"1", "2", "16", "1024", "1025", "0", "-1", "x"}, "crdv"},
      {"--json", {}, "cridvk"},
      {"--for", {"transformers", "vllm", "sglang", "any", ""}, "k"},
      {"--like", {"/", "/nonexistent", "", "."}, "k"},
      {"--only", kGlobs, "rd"},
      {"--drop", kGlobs, "rd"},
      {"--rename",
       {"a=b", "*=*", "decoder.*=model.*", "=", "a=", "*=a", "a=*", "**=**", "",
        "embedding.*=decoder.*"},
       "r"},
      {"--tensors", kGlobs, "i"},
      {"--tensors", {}, "i"},
      {"--stats", kGlobs, "i"},
      {"--args", {}, "i"},
      {"--objects", {}, "i"},
      {"--tolerance", {"0", "1e-6", "-1", "nan", "inf", "1e400", "x", ""}, "d"},
      {"--relative-tolerance", {"0", "0.1", "-0", "nan", "1e-400"}, "d"},
      {"--ignore-dtype", {}, "d"},
      {"--quiet", {}, "d"},
      {"--all", {}, "v"},
      {"--verify", {}, "cr"},
      {"--help", {}},
      {"--", {}},
      {"-x", {}},
      {"-q", {}, "d"},
      {"--no-such-option", {"1"}}};
  return all;
}

// check and convert begin alike.
char letter_of(const std::string& command) { return command == "check" ? 'k' : command[0]; }

class CommandMutator final : public Mutator {
 public:
  std::string input(Random& random) const override {
    std::vector<std::string> words = {random.pick(kCommands)};
    const bool writes = words[0] == "convert" || words[0] == "reshard";
    words.push_back(path(random));
    if (writes || words[0] == "diff") words.push_back(writes ? kNowhere : path(random));
    if (words[0] == "convert" && !random.one_in(8)) add(words, options()[0], random);
    for (uint64_t count = random.below(5); count > 0; --count) {
      const Option* option = &random.pick(options());
      while (option->commands.find(letter_of(words[0])) == std::string_view::npos &&
             !random.one_in(64)) {
        option = &random.pick(options());
      }
      add(words, *option, random);
    }
    if (random.one_in(12)) disturb(words, random);
    std::string bytes;
    for (const std::string& word : words) (bytes += word) += '\0';
    return bytes;
  }

 private:
  static std::string path(Random& random) {
    if (random.one_in(10)) return random.one_in(2) ? "" : "--";
    return std::string(FERRY_FIXTURES) + random.pick(kPaths);
  }

  static void add(std::vector<std::string>& words, const Option& option, Random& random) {
    std::string name = option.name;
    if (random.one_in(40)) name.resize(random.below(name.size() + 1));
    if (option.values.empty() || random.one_in(40)) return words.push_back(name);
    const size_t values = option.values.size();
    const std::string& value =
        option.values[random.below(random.one_in(4) ? values : (values + 1) / 2)];
    if (random.one_in(3)) return words.push_back(name + "=" + value);
    words.insert(words.end(), {name, value});
  }

  static void disturb(std::vector<std::string>& words, Random& random) {
    const size_t at = random.below(words.size());
    switch (random.below(4)) {
      case 0:
        words.erase(words.begin() + static_cast<ptrdiff_t>(at));
        return;
      case 1:
        words.insert(words.begin() + static_cast<ptrdiff_t>(at), random.pick(words));
        return;
      case 2:
        std::swap(words[at], words[random.below(words.size())]);
        return;
      default:
        words[at] += static_cast<char>(1 + random.below(255));
    }
  }
};

std::vector<std::string> words_of(std::string_view bytes) {
  std::vector<std::string> words;
  while (!bytes.empty()) {
    words.emplace_back(bytes.substr(0, bytes.find('\0')));
    bytes.remove_prefix(std::min(bytes.size(), words.back().size() + 1));
  }
  return words;
}

void silence_output() {
  static const bool silent = [] {
    const int null = ::open("/dev/null", O_WRONLY);
    return ::dup2(null, STDOUT_FILENO) >= 0;
  }();
  if (!silent) finding("no /dev/null");
}

bool is_writer(const std::string& word) { return word == "convert" || word == "reshard"; }

// The first word alone is a command, and one of those that are tried here.
bool may_run(const std::vector<std::string>& words) {
  if (words.empty() || std::any_of(words.begin() + 1, words.end(), is_writer)) return false;
  return std::any_of(std::begin(kCommands), std::end(kCommands),
                     [&](const char* command) { return words[0] == command; });
}

void run(std::vector<std::string> words) {
  if (!may_run(words)) return;
  if (is_writer(words[0])) words.insert(words.begin() + 1, "--dry-run");
  CLI::App program("", "ferry");
  program.require_subcommand(1);
  int exit_code = 0;
  const tool::Processes processes = [] { return lone_group(); };
  tool::Command commands(program);
  tool::add_inspect(commands);
  tool::add_convert(commands, processes);
  tool::add_reshard(commands, processes);
  tool::add_verify(commands, exit_code);
  tool::add_check(commands, exit_code);
  tool::add_diff(commands, exit_code);
  std::vector<char*> argv = {const_cast<char*>("ferry")};
  for (std::string& word : words) argv.push_back(word.data());
  try {
    program.parse(static_cast<int>(argv.size()), argv.data());
    ++counts().done;
  } catch (const CLI::ParseError&) {
    ++counts().misread;
  }
}

}  // namespace

std::unique_ptr<Mutator> make_mutator(const std::vector<std::string>&, size_t) {
  return std::make_unique<CommandMutator>();
}

}  // namespace ferry::test

// Any words are a command that is carried out, or refused in the parser's words, or an Error; and
// a dry run writes nothing.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::test;
  silence_output();
  ++counts().inputs;
  succeeds("command", [&] { run(words_of({reinterpret_cast<const char*>(data), size})); });
  if (std::filesystem::exists(kNowhere)) finding("a dry run has written");
  return 0;
}
