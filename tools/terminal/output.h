// Results go to standard output, whole or not at all; everything else to standard error.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ferry::tool {

/// Makes sure that descriptors 0 to 2 are open: the next file to be opened would get the number of
/// one that is closed, and receive what is printed. Call it first in main().
void hold_standard_streams() noexcept;

/// Discards everything printed to standard output from now on.
void silence_standard_output() noexcept;
/// The same for standard error. Pass the result to restore_standard_error() or
/// print_past_silence() for messages that must be shown anyway.
int silence_standard_error() noexcept;
void restore_standard_error(int silenced) noexcept;
/// Writes to standard error, silenced or not (then `silenced` is negative).
void print_past_silence(int silenced, std::string_view text) noexcept;

/// Writes to standard output; io when it refuses (a full disk).
void print(std::string_view text);

/// The same for the report of a finished job: an error begins with `done` ("OUT is complete").
void print_done(std::string_view text, std::string_view done);

/// Writes a message to standard error, in_flags() (tools/terminal/flags.h), and ignores errors.
void print_aside(std::string_view text) noexcept;

/// The report with its messages in_flags(), indent 2 and a newline; bytes that are not UTF-8 become
/// U+FFFD.
std::string json_text(nlohmann::json report);

}  // namespace ferry::tool
