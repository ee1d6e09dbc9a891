// Files of text as documents of ByteTokenizer's tokens.
#pragma once

#include <cstdint>
#include <functional>

#include "ckpt/io/file_system.h"
#include "trainer/data/documents/indexed_dataset_writer.h"

namespace ferry::tool {

struct ByteOptions {
  bool lines = false;       // a document a line, without what ends it; else one a file
  bool append_eod = false;  // ByteTokenizer::kEndOfDocument after each document
};

/// What was written so far.
struct ByteTokens {
  int64_t documents = 0, tokens = 0;
  int64_t left_out = 0;  // files or lines without a byte, which make no document
};

/// Adds the documents of a file, each of one sequence. Memory does not depend on the file's size.
/// `read` is called with the bytes read, and may throw. invalid for a document of 2^31 tokens
/// or more.
void add_byte_tokens(const ReadableFile& file, const ByteOptions& options,
                     IndexedDatasetWriter& writer, ByteTokens& written,
                     const std::function<void(uint64_t)>& read = {});

}  // namespace ferry::tool
