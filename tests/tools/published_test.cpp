// Results that must outlast a power loss: the folder that got their names is synced, too.
#include <sys/stat.h>

#include <cstdlib>

#include "tests/io/durable_file_system.h"
#include "tests/io/fault_file_system.h"
#include "tests/tools/program.h"
#include "tools/launch/scripts.h"
#include "tools/report/html.h"
#include "tools/report/page_file.h"
#include "tools/runs/copy.h"
#include "tools/runs/export.h"

namespace ferry::tool {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

struct Published : test::Program {
  std::shared_ptr<const DurableFileSystem> durable =
      std::make_shared<DurableFileSystem>(posix_file_system());
  const Metrics::Table table = {{1, {{"lm loss", 4.5}}}, {2, {{"lm loss", 4.25}}}};
  const std::string page = "<html>" + std::string(kPageMark) + "</html>";

  void write_run(const std::string& name) const {
    std::filesystem::create_directories(folder / name);
    write(path(name + "/metrics.jsonl"), "{\"iteration\":1,\"lm loss\":3.5}\n");
  }
};

TEST_F(Published, CsvIsOnDisk) {
  export_csv(durable, table, path("a.csv"));
  EXPECT_THAT(durable->unsynced_folders(), IsEmpty());
  EXPECT_EQ(read(path("a.csv")), metrics_csv(table));
}

TEST_F(Published, EventFilesAreOnDisk) {
  export_tensorboard(durable, table, path("events"));
  EXPECT_THAT(durable->unsynced_folders(), IsEmpty());
  EXPECT_THAT(left(), UnorderedElementsAre("events"));
}

// By a program that has the package's place: it writes what it was given into the folder.
TEST_F(Published, FilesOfWandbAreOnDisk) {
  std::filesystem::create_directories(folder / "bin");
  write(path("bin/python3"),
        "#!/bin/sh\n[ $# -gt 2 ] || exit 0\nmkdir \"$3/wandb\" && cp \"$5\" \"$3/wandb/run\"\n");
  ::chmod(path("bin/python3").c_str(), 0755);
  const std::string old = std::getenv("PATH");
  ::setenv("PATH", (path("bin") + ":" + old).c_str(), 1);
  export_wandb(durable, table, path("offline"), "a run");
  ::setenv("PATH", old.c_str(), 1);
  EXPECT_THAT(durable->unsynced_folders(), IsEmpty());
  EXPECT_THAT(durable->files_synced_for_others(), ElementsAre(EndsWith("/wandb/run")));
  EXPECT_EQ(read(path("offline/wandb/run")), metrics_csv(table));
  EXPECT_EQ(durable->list(path("offline")), std::vector<std::string>{"wandb"});
  EXPECT_THAT(left(), UnorderedElementsAre("bin", "offline"));
}

TEST_F(Published, CopiesOfRunsAreOnDiskWithTheFoldersThatWereMadeForThem) {
  write_run("p/a/logs");
  copy_runs(durable, {path("p"), path("q/r"), {"a"}, {"b/c"}});
  EXPECT_THAT(durable->unsynced_folders(), IsEmpty());
  EXPECT_EQ(read(path("q/r/b/c/logs/metrics.jsonl")), "{\"iteration\":1,\"lm loss\":3.5}\n");
}

TEST_F(Published, PagesAreOnDisk) {
  for (const bool overwrite : {false, true}) {
    write_page_file(durable, {path("a.html"), overwrite}, page);
    EXPECT_THAT(durable->unsynced_folders(), IsEmpty());
  }
  EXPECT_EQ(read(path("a.html")), page);
  EXPECT_THAT(left(), UnorderedElementsAre("a.html"));
}

TEST_F(Published, LaunchesAreOnDisk) {
  write_launch_files(durable, path("launch"), {{"run.sh", "1"}, {"job.sh", "2"}});
  write_launch_files(durable, path("launch"), {{"run.sh", "3"}, {"job.sh", "4"}});
  EXPECT_THAT(durable->unsynced_folders(), IsEmpty());
  EXPECT_EQ(read(path("launch/run.sh")) + read(path("launch/job.sh")), "34");
  EXPECT_EQ(durable->list(path("launch")), (std::vector<std::string>{"job.sh", "run.sh"}));
}

// A copy is whole or not there, and an export too, whatever fails.
TEST_F(Published, NothingIsThereInPart) {
  write_run("p/a");
  bool is_done = false;
  for (uint64_t n = 1; !is_done; ++n) {
    const auto faulty =
        std::make_shared<FaultFileSystem>(posix_file_system(), n, ErrorKind::io, true);
    try {
      copy_runs(faulty, {path("p"), path("p"), {"a"}, {}});
      export_tensorboard(faulty, table, path("events"));
      export_csv(faulty, table, path("a.csv"));
      is_done = true;
    } catch (const Error&) {
      if (std::filesystem::exists(path("p/a-copy"))) {
        EXPECT_EQ(read(path("p/a-copy/metrics.jsonl")), read(path("p/a/metrics.jsonl")));
      }
      if (std::filesystem::exists(path("events"))) {
        EXPECT_FALSE(std::filesystem::is_empty(path("events")));
      }
      if (std::filesystem::exists(path("a.csv"))) {
        EXPECT_EQ(read(path("a.csv")), metrics_csv(table));
      }
      for (const std::string& name : left()) EXPECT_FALSE(name.starts_with(".ferry-partial"));
    }
    if (!is_done) {
      for (const char* made : {"p/a-copy", "events", "a.csv"}) {
        std::filesystem::remove_all(path(made));
      }
    }
  }
}

}  // namespace
}  // namespace ferry::tool
