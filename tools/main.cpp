#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "ckpt/base/error.h"
#include "tools/commands.h"
#include "tools/terminal/exit_code.h"
#include "tools/terminal/text.h"

namespace ferry::tool {
namespace {

int report(ErrorKind kind, const std::string& message, const std::string& what_to_do) {
  fmt::print(stderr, "ferry: error: {}\n", printable(message, true));
  if (!what_to_do.empty()) fmt::print(stderr, "ferry: hint: {}\n", what_to_do);
  return exit_code(kind);
}

int report(ErrorKind kind, const std::string& message) { return report(kind, message, hint(kind)); }

int run(int argc, char** argv) {
  CLI::App program("Opens, converts and describes checkpoints of language models.", "ferry");
  program.set_version_flag("--version", "ferry " FERRY_VERSION);
  program.require_subcommand(1);
  program.footer(
      "Examples:\n  ferry inspect runs/llama\n"
      "  ferry convert runs/llama llama-hf --to hf\n"
      "  ferry verify llama-hf\n"
      "  ferry prune runs/llama --keep-last 3 --keep-every 1000\n\n" +
      exit_code_help());
  add_inspect(program);
  add_convert(program);
  add_verify(program);
  add_prune(program);
  try {
    program.parse(argc, argv);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return program.exit(error);  // --help, --version
    const auto commands = program.get_subcommands();
    const std::string command = commands.empty() ? "" : " " + commands.front()->get_name();
    return report(ErrorKind::invalid, error.what(),
                  fmt::format("ferry{} --help tells how to use it", command));
  } catch (const Error& error) {
    return report(error.kind(), error.what());
  } catch (const std::bad_alloc&) {
    return report(ErrorKind::exhausted, "out of memory");
  } catch (const std::exception& error) {
    return report(ErrorKind::internal, error.what());
  }
}

}  // namespace
}  // namespace ferry::tool

int main(int argc, char** argv) { return ferry::tool::run(argc, argv); }
