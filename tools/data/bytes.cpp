#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ckpt/base/error.h"
#include "ops/output/paths.h"
#include "tools/data/commands.h"
#include "tools/data/data_report.h"
#include "tools/terminal/common_options.h"
#include "tools/terminal/interrupt.h"
#include "tools/terminal/output.h"
#include "tools/terminal/progress.h"

namespace ferry::tool {
namespace {

struct BytesFlags {
  std::string output;
  std::vector<std::string> files;
  ByteOptions options;
  bool overwrite = false, json = false, progress = false;
};

constexpr const char* kBytesExamples = R"(Examples:
  ferry data bytes corpus *.txt --append-eod
  ferry data bytes corpus stories.txt --lines --append-eod
  ferry train --data-path corpus --tokenizer-type NullTokenizer --vocab-size 257 ...

Tokens are the bytes of the text, 0 to 255, and 256, which ends a document.
)";

// Bytes of all files. Whatever cannot be read shows here, before anything is written.
uint64_t size_of_texts(const FileSystem& file_system, const BytesFlags& flags,
                       const std::string& prefix) {
  uint64_t bytes = 0;
  for (const std::string& file : flags.files) {
    bytes += file_system.open(file)->size();
    for (const char* suffix : {".bin", ".idx"}) {
      if (!is_same_or_inside(file, prefix + suffix)) continue;
      fail(ErrorKind::invalid, "{} would be replaced by what is made of it; choose another OUT",
           file);
    }
  }
  return bytes;
}

uint64_t pair_bytes(const FileSystem& file_system, const std::string& prefix) {
  return file_system.status(prefix + ".bin").bytes + file_system.status(prefix + ".idx").bytes;
}

void write_bytes(const BytesFlags& flags) {
  const auto file_system = posix_file_system();
  WrittenBytes result;
  result.output = prefix_of(flags.output);
  result.files = flags.files;
  IndexedDatasetWriter::check_target(*file_system, result.output, flags.overwrite);
  Progress progress{0, size_of_texts(*file_system, flags, result.output)};
  {
    const InterruptScope interrupt;
    ProgressLine line("writing", flags.progress);
    IndexedDatasetWriter writer(file_system, result.output, DType::u16, flags.overwrite);
    for (const std::string& file : flags.files) {
      add_byte_tokens(*file_system->open(file), flags.options, writer, result.written,
                      [&](uint64_t bytes) {
                        interrupt.check();
                        progress.bytes_done += bytes;
                        line.show(progress);
                      });
    }
    writer.commit();
    result.seconds = line.seconds();
  }
  result.bytes = pair_bytes(*file_system, result.output);
  print_done(flags.json ? json_text(to_json(result)) : to_text(result),
             result.output + " is complete");
}

}  // namespace

void add_data_bytes(Command& data) {
  auto flags = std::make_shared<BytesFlags>();
  Command command = data.add_command("bytes", "Make token files from text, one token per byte");
  command.add_option("OUT", flags->output, "The prefix to write: OUT.bin and OUT.idx")
      .required()
      .type_name("")
      .check(file_prefix());
  command.add_option("FILE", flags->files, "Text files; each file is a document")
      .required()
      .type_name("");
  command.add_flag("--lines", flags->options.lines, "Each line is a document");
  command.add_flag("--append-eod", flags->options.append_eod,
                   "End each document with token 256, as Megatron-LM's preprocess_data.py does");
  command.add_flag("--overwrite", flags->overwrite, "Replace files that exist");
  add_progress_option(command, flags->progress);
  add_json_option(command, flags->json);
  command.footer(kBytesExamples);
  command.action([flags] { write_bytes(*flags); });
}

}  // namespace ferry::tool
