#include "ckpt/group/mpi/launcher.h"
#include "tools/commands.h"
#include "tools/data/commands.h"

namespace ferry::tool {
namespace {

constexpr const char* kDataExamples = R"(Examples:
  ferry data tokenize --input 'texts/*.jsonl' --output-prefix corpus --append-eod \
      --tokenizer-type HuggingFaceTokenizer --tokenizer-model llama-hf
  ferry data check corpus_text_document
  ferry data merge --help                    the options of a command
)";

}  // namespace

void add_data(Command& program, int& exit_code) {
  Command data =
      program.add_command("data", "Make, inspect, check and merge token files (.bin and .idx)");
  data.require_command();
  data.footer(kDataExamples);
  add_data_tokenize(data);
  add_inspect_data(data);
  add_check_data(data, exit_code);
  add_merge_data(data);
  add_data_bytes(data);
  add_mix_data(data);
  add_config_data(data);
  add_dumps_data(data);
  add_show_data(data);
}

}  // namespace ferry::tool
