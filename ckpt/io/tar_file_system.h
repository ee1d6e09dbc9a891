// A tar archive as a folder: its members are files below the archive's path, read where they are.
//
// Reads the forms that tar, Python's tarfile and others write: ustar with its prefix, GNU's long
// names and base-256 sizes, pax headers (path, size). An archive's bytes are not trusted: sizes are
// checked against the file, every header against its checksum, and names must stay inside. Links,
// devices and sparse files are left out.
//
// Source: POSIX.1-2017 (pax, "ustar Interchange Format"), GNU tar manual, "Basic Tar Format".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ckpt/io/file_system.h"

namespace ferry {

/// A regular file of an archive.
struct TarMember {
  std::string name;  // without "./" before it
  uint64_t offset = 0, bytes = 0;
};

/// True where the file begins with the header of a tar archive.
bool is_tar(const ReadableFile& file);

/// The archive's files, in their order; of several of one name the last counts, as for tar. corrupt
/// for headers that contradict their checksums or leave the file, names that leave the folder, or
/// an archive that is cut off; exhausted for more members than any checkpoint has.
std::vector<TarMember> read_tar(const ReadableFile& file);

/// `inner`, in which the archive `path` is a folder. What is not below `path` is passed on. Nothing
/// can be written below it. As read_tar().
std::shared_ptr<const FileSystem> tar_file_system(std::shared_ptr<const FileSystem> inner,
                                                  const std::string& path);

}  // namespace ferry
