// Snappy's raw format, in which pages of Parquet files are compressed most of the time.
//
// Source: google/snappy, format_description.txt.
#pragma once

#include <cstddef>
#include <span>

namespace ferry::tool {

/// Fills `into`, whose size is what the bytes have to give. False when they give something else.
bool uncompress_snappy(std::span<const std::byte> bytes, std::span<std::byte> into);

}  // namespace ferry::tool
