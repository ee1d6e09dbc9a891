// Tar archives by GNU tar in its four forms, and archives that lie.
#include <gmock/gmock.h>

#include <array>
#include <functional>

#include "ckpt/base/error.h"
#include "ckpt/io/tar_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/support.h"

namespace ferry {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string bytes_of(const FileSystem& files, const std::string& path) {
  return read_file(files, path, 1 << 20);
}

std::string tar_fixture(const std::string& form) {
  return bytes_of(*posix_file_system(), test::fixture("tar/" + form + ".tar"));
}

// The header of a file, with its checksum.
std::string tar_header(const std::string& name, const std::string& octal_size, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(124, octal_size.size(), octal_size);
  header[156] = type;
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 7, fmt::format("{:06o}", sum) + std::string(1, '\0'));
  return header;
}

std::string padded(std::string text) {
  text.resize((text.size() + 511) / 512 * 512, '\0');
  return text;
}

const std::string kTarEnd(1024, '\0');

std::string tar_problem(ErrorKind kind, const std::string& content) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("a.tar", content);
  try {
    tar_file_system(memory, "a.tar");
    ADD_FAILURE() << "was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return {};
}

TEST(Tar, FormsOfGnuTarAreFolders) {
  const std::string sixty(60, 'd');
  for (const char* form : {"gnu", "pax", "ustar"}) {
    SCOPED_TRACE(form);
    const auto memory = std::make_shared<MemoryFileSystem>();
    memory->put("x/a.tar", tar_fixture(form));
    memory->put("x/b", "outside");
    const auto files = tar_file_system(memory, "x/a.tar");
    EXPECT_THAT(files->list("x/a.tar"), ElementsAre(sixty, "inner", "model_config.yaml"));
    EXPECT_THAT(files->list("x/a.tar/inner"), ElementsAre("digits"));
    EXPECT_EQ(files->status("x/a.tar").kind, PathKind::folder);
    EXPECT_EQ(files->status("x/a.tar/inner/digits").bytes, 10u);
    EXPECT_EQ(files->status("x/a.tar/link").kind, PathKind::missing);
    EXPECT_EQ(bytes_of(*files, "x/a.tar/inner/digits"), "0123456789");
    EXPECT_EQ(bytes_of(*files, "x/a.tar/" + sixty + "/" + sixty + "/name"), "far");
    EXPECT_EQ(bytes_of(*files, "x/b"), "outside");
  }
}

TEST(Tar, TheOldestFormToo) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("a.tar", tar_fixture("v7"));
  EXPECT_TRUE(is_tar(*memory->open("a.tar")));
  const auto files = tar_file_system(memory, "a.tar");
  EXPECT_EQ(bytes_of(*files, "a.tar/model_config.yaml"), "hidden_size: 4\n");
}

TEST(Tar, AMembersReadsEndWithIt) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("a.tar", tar_fixture("gnu"));
  const auto file = tar_file_system(memory, "a.tar")->open("a.tar/inner/digits");
  std::array<std::byte, 4> four{};
  file->read(6, four);
  EXPECT_EQ(std::to_integer<char>(four[3]), '9');
  EXPECT_THROW(file->read(7, four), Error);
  EXPECT_THROW(file->read(UINT64_MAX, four), Error);
}

TEST(Tar, OfOneNameTheLastCounts) {
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("a.tar",
              tar_header("a", "1") + padded("1") + tar_header("./a", "2") + padded("22") + kTarEnd);
  EXPECT_EQ(bytes_of(*tar_file_system(memory, "a.tar"), "a.tar/a"), "22");
}

TEST(Tar, InconsistentHeadersAreCorrupt) {
  constexpr ErrorKind kCorrupt = ErrorKind::corrupt;
  std::string flipped = tar_header("a", "1") + padded("1") + kTarEnd;
  flipped[0] = 'b';
  EXPECT_THAT(tar_problem(kCorrupt, flipped), HasSubstr("checksum"));
  EXPECT_THAT(tar_problem(kCorrupt, tar_header("a", "77777777777") + kTarEnd),
              HasSubstr("larger than what follows"));
  EXPECT_THAT(tar_problem(kCorrupt, tar_header("a", "9") + kTarEnd), HasSubstr("not a number"));
  EXPECT_THAT(tar_problem(kCorrupt, tar_header("a", std::string("\x80\xff\xff\xff\xff\xff\xff\xff"
                                                                "\xff\xff\xff\xff",
                                                                12)) +
                                        kTarEnd),
              HasSubstr("a.tar"));
  for (const char* name : {"../a", "/a", "a/../../b"}) {
    EXPECT_THAT(tar_problem(kCorrupt, tar_header(name, "0") + kTarEnd), HasSubstr("leave"));
  }
  EXPECT_THAT(tar_problem(kCorrupt, tar_header("a", "0") + tar_header("a/b", "0") + kTarEnd),
              HasSubstr("a file and a folder"));
  EXPECT_THAT(tar_problem(kCorrupt, tar_header("a", "1") + padded("1")), HasSubstr("cut off"));
  EXPECT_THAT(tar_problem(kCorrupt, tar_header("x", "7", 'x') + padded("99 a=b\n") + kTarEnd),
              HasSubstr("pax"));
  EXPECT_THAT(tar_problem(ErrorKind::unsupported, tar_header("a", "0", 'S') + kTarEnd),
              HasSubstr("sparse"));
}

TEST(Tar, EveryCutIsFound) {
  const std::string whole = tar_fixture("gnu");
  const size_t last = whole.find_last_not_of('\0');
  for (size_t bytes = 512; bytes < last; bytes += 13) {
    tar_problem(ErrorKind::corrupt, whole.substr(0, bytes));
  }
}

}  // namespace
}  // namespace ferry
