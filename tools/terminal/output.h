// Results go to standard output, whole or not at all; all else to standard error.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ferry::tool {

/// Makes sure that descriptors 0 to 2 are taken: where one is closed, the next file to be opened
/// would get its number, and what is printed would land in that file. First thing in main().
void hold_standard_streams() noexcept;

/// What is printed there from here on goes nowhere.
void silence_standard_output() noexcept;
/// The same. Returns what to give restore_standard_error(), for what has to be told all the same.
int silence_standard_error() noexcept;
void restore_standard_error(int silenced) noexcept;
/// Writes to standard error, silenced or not (then `silenced` is negative).
void print_past_silence(int silenced, std::string_view text) noexcept;

/// Writes to standard output; io when it refuses (a full disk).
void print(std::string_view text);

/// The same, of a job that is done whether or not that can be told: the error begins with `done`
/// ("OUT is complete").
void print_done(std::string_view text, std::string_view done);

/// Writes a message to standard error, in_flags() (tools/terminal/flags.h). What it refuses is
/// lost: there is nobody left to tell.
void print_aside(std::string_view text) noexcept;

/// The report with its messages in_flags(), indent 2 and a newline; bytes that are not UTF-8 become
/// U+FFFD.
std::string json_text(nlohmann::json report);

}  // namespace ferry::tool
