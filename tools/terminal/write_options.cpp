#include "tools/terminal/write_options.h"

#include <fmt/format.h>

#include <string>

#include "tools/terminal/common_options.h"
#include "tools/terminal/text.h"
#include "tools/terminal/validators.h"

namespace ferry::tool {

void add_write_options(Command& command, WriteOptions& options, const char* replaced) {
  command.add_flag(
      "--overwrite", options.overwrite,
      fmt::format("Replace {}; the old one is kept until the new one is complete", replaced));
  command.add_flag(
      "--no-manifest", [&] { options.integrity.manifest = false; },
      "Do not write ferry.manifest.json, the checksums that ferry verify uses");
  command
      .add_option(
          "--integrity", [&](const std::string&) { options.integrity.sha256 = true; },
          "sha256: also write integrity.json, as Megatron Core does; reads OUT once more")
      .type_name("HASH")
      .one_of({"sha256"});
  add_engine_options(command, options.engine);
  command.add_flag("--dry-run", options.dry_run, "Check everything and show what would be written");
}

void add_megatron_options(Command& command, WriteOptions& options, const char* help_group) {
  command
      .add_option(
          "--core-release",
          [&](const std::string& text) { options.release = parse_core_release(text); },
          "Megatron Core release that will load it (default: the current one)")
      .type_name("N")
      .group(help_group);
  command
      .add_option(
          "--compress",
          [&](const std::string& text) { options.zstd_level = parse_compression(text); },
          "Compress tensors as PyTorch's DCP can: zstd or zstd:LEVEL (1 to 19)")
      .type_name("HOW")
      .group(help_group);
}

}  // namespace ferry::tool
