// Files that a run leaves for people and programs.
#include "trainer/log/log_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "ckpt/base/error.h"
#include "tests/io/memory_file_system.h"
#include "trainer/log/progress_log.h"
#include "trainer/log/timers.h"

namespace ferry {
namespace {

using testing::HasSubstr;

TEST(GrowingFile, AppendsToWhatIsThere) {
  MemoryFileSystem files;
  make_folders(files, "/a/b/c");
  GrowingFile(files, "/a/b/c/log").append("one ");
  {
    GrowingFile file(files, "/a/b/c/log");
    file.append("two ");
    file.append("three");
    file.sync();
  }
  EXPECT_EQ(files.get("/a/b/c/log"), "one two three");
  EXPECT_THROW(make_folders(files, "/a/b/c/log/d"), Error);
}

// A file of the operating system, which does not keep every promise that one in memory does.
class RealFile : public testing::Test {
 protected:
  RealFile() {
    if (::mkdtemp(folder_.data()) == nullptr) throw std::runtime_error("no temporary folder");
    path_ = folder_ + "/log";
  }
  ~RealFile() override { std::filesystem::remove_all(folder_); }

  std::string content(const std::string& path) const { return read_file(*files_, path, 1 << 20); }

  std::string folder_ = testing::TempDir() + "ferry.XXXXXX";
  const std::shared_ptr<const FileSystem> files_ = posix_file_system();
  std::string path_;
};

TEST_F(RealFile, MayBeEmptiedByOthers) {
  LineFile file(*files_, path_);
  file.append("one\n");
  std::filesystem::resize_file(path_, 0);
  file.append("two\n");
  file.append("three\n");
  EXPECT_EQ(content(path_), "two\nthree\n");
  std::filesystem::resize_file(path_, 5);
  file.append("four\n");
  file.sync();
  EXPECT_EQ(content(path_), "two\nt\nfour\n");
}

TEST_F(RealFile, MayBeRenamedByOthers) {
  LineFile file(*files_, path_);
  file.append("one\n");
  std::filesystem::rename(path_, path_ + ".1");
  file.append("two\n");
  EXPECT_EQ(content(path_ + ".1"), "one\ntwo\n");
}

TEST_F(RealFile, IsWrittenWhereALinkLeads) {
  files_->create(folder_ + "/real", 0);
  std::filesystem::create_symlink("real", path_);
  LineFile(*files_, path_).append("one\n");
  EXPECT_EQ(content(folder_ + "/real"), "one\n");
  EXPECT_TRUE(std::filesystem::is_symlink(path_));
}

// A limit on the size of files stands for a full disk.
TEST_F(RealFile, KeepsNoPartOfALineThatFails) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  LineFile file(*files_, path_);
  file.append("one\n");
  const rlimit small{6, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  EXPECT_THROW(file.append("two\n"), Error);
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(content(path_), "one\n");
  file.append("three\n");
  EXPECT_EQ(content(path_), "one\nthree\n");
}

TEST(LineFile, EndsALineThatWasCutShort) {
  MemoryFileSystem files;
  files.put("/log", "{\"a\": 1}\n{\"a\"");
  LineFile(files, "/log").append("{\"a\": 3}\n");
  LineFile(files, "/log").append("{\"a\": 4}\n");
  EXPECT_EQ(files.get("/log"), "{\"a\": 1}\n{\"a\"\n{\"a\": 3}\n{\"a\": 4}\n");
  LineFile(files, "/new").append("x\n");
  EXPECT_EQ(files.get("/new"), "x\n");
}

TEST(LineFile, HasOneWriterAtATime) {
  MemoryFileSystem files;
  files.put("/log", "");
  auto lock = lock_of_writer(files, "/log");
  EXPECT_THROW(lock_of_writer(files, "/log"), Error);
  lock.reset();
  EXPECT_NO_THROW(lock_of_writer(files, "/log"));
}

TEST(ProgressLog, IsMegatrons) {
  const int64_t noon = 1'700'000'000;
  const std::string time = date_and_time(noon * 1'000'000).substr(0, 19);
  EXPECT_EQ(progress_line(noon, "77", 8, kJobStarted),
            time + "\tJob ID: 77\t# GPUs: 8\tStarting job\n");
  ProgressSave save;
  save.iteration = 500;
  save.job_teraflops = 412.345;
  save.cumulative_teraflops = 400;
  save.operations = 2.852e16;
  save.tokens = 12'345'678'901;
  EXPECT_EQ(saved_message(save, false),
            "Saved checkpoint\tIteration: 500\tJob throughput: 412.3 TFLOP/s/GPU\tCumulative "
            "throughput: 400.0 TFLOP/s/GPU\tFloating-point operations: 2.85e+16\tTokens (in "
            "billions): 12.35");
  EXPECT_THAT(saved_message(save, true), testing::StartsWith("Saving async checkpoint\tIteration"));
  EXPECT_EQ(committed_message(500), "Saved async checkpoint\tIteration: 500");
}

// What a run of several jobs left, the second of them with more ranks.
std::string history() {
  ProgressSave save;
  const auto saved = [&](double operations, bool pending) {
    save.operations = operations;
    return saved_message(save, pending);
  };
  int64_t second = 1'700'000'000;
  std::string text = "not such a line\n\n";
  for (const auto& [ranks, message] :
       std::vector<std::pair<int64_t, std::string>>{{4, std::string(kJobStarted)},
                                                    {4, saved(1e15, false)},
                                                    {8, std::string(kJobStarted)},
                                                    {8, saved(2e15, true)},
                                                    {8, std::string(kJobStarted)},
                                                    {8, committed_message(5)}}) {
    text += progress_line(second, "", ranks, message);
    second += 100;
  }
  return text;
}

TEST(ProgressLog, FindsTheFirstJobWithAsManyRanks) {
  const auto start = read_progress(history(), 8);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->seconds, 1'700'000'200);
  EXPECT_EQ(start->operations, 1e15);
  EXPECT_FALSE(read_progress(history(), 4));  // eight ranks came later
  EXPECT_FALSE(read_progress("", 4));
  const std::string more = history() + progress_line(1'700'000'900, "", 4, kJobStarted);
  EXPECT_EQ(read_progress(more, 4)->seconds, 1'700'000'900);
  EXPECT_EQ(read_progress(more, 4)->operations, 2e15);  // once it is on disk
}

TEST(ProgressLog, KeepsWhatWasThere) {
  MemoryFileSystem files;
  files.put("/runs/x/progress.txt", history());
  const ProgressLog log(files, "/runs/x", "9", 8);
  log.append(kJobStarted);
  ProgressSave save;
  save.operations = 3e15;
  log.append_save(save, false);
  const std::string text = files.get("/runs/x/progress.txt");
  EXPECT_THAT(text, testing::StartsWith(history()));
  EXPECT_THAT(text, HasSubstr("\tJob ID: 9\t# GPUs: 8\tStarting job\n"));
  EXPECT_THAT(text, HasSubstr("Floating-point operations: 3.00e+15"));
}

// RFC 3720, B.4.
TEST(Crc32c, IsCastagnolis) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
}

TEST(EventRecord, IsAsTensorFlowWritesIt) {
  // Written by TensorBoard's EventFileWriter: wall time 1.5, step 300, "loss" 0.25.
  const std::string event = scalar_event(1.5, 300, "loss", 0.25f);
  const unsigned char bytes[] = {0x09, 0,    0,    0,    0,    0,    0,    0xF8, 0x3F,
                                 0x10, 0xAC, 0x02, 0x2A, 0x0D, 0x0A, 0x0B, 0x0A, 0x04,
                                 'l',  'o',  's',  's',  0x15, 0,    0,    0x80, 0x3E};
  EXPECT_EQ(event, std::string(reinterpret_cast<const char*>(bytes), sizeof bytes));
  const std::string record = event_record("abc");
  ASSERT_EQ(record.size(), 8u + 4 + 3 + 4);
  EXPECT_EQ(record.substr(0, 8), std::string("\3\0\0\0\0\0\0\0", 8));
  EXPECT_EQ(record.substr(12, 3), "abc");
  uint32_t checksum = 0;
  std::memcpy(&checksum, record.data() + 15, 4);
  checksum -= 0xA282EAD8u;
  EXPECT_EQ(checksum << 15 | checksum >> 17, crc32c("abc"));
}

TEST(EventFile, BeginsWithItsVersion) {
  MemoryFileSystem files;
  {
    EventFile events(files, "/tb/run");
    events.add("lm loss", 2.5, 7);
    events.sync();
  }
  const auto names = files.list("/tb/run");
  ASSERT_EQ(names.size(), 1u);
  EXPECT_THAT(names[0], testing::StartsWith("events.out.tfevents."));
  const std::string bytes = files.get("/tb/run/" + names[0]);
  EXPECT_THAT(bytes, HasSubstr("brain.Event:2"));
  EXPECT_THAT(bytes, HasSubstr("lm loss"));
}

TrainingLine sample_line() {
  TrainingLine line;
  line.iteration = 5;
  line.consumed_samples = 40;
  line.milliseconds = 1500;
  line.batch_size = 8;
  line.learning_rate = 1e-3;
  line.losses = {{"lm loss", 2.5}};
  line.gradient_norm = 0.5;
  return line;
}

TEST(Scalars, HaveMegatronsNames) {
  TrainArguments a = default_arguments();
  std::vector<std::string> names;
  for (const Scalar& scalar : training_scalars(a, sample_line())) {
    names.push_back(scalar.name);
    EXPECT_EQ(scalar.step, scalar.name.ends_with(" vs samples") ? 40 : 5) << scalar.name;
  }
  EXPECT_THAT(names, testing::ElementsAre("learning-rate", "learning-rate vs samples", "batch-size",
                                          "batch-size vs samples", "lm loss", "lm loss vs samples",
                                          "loss-scale", "loss-scale vs samples", "grad-norm",
                                          "grad-norm vs samples"));
  EXPECT_TRUE(timing_scalars(a, sample_line()).empty());
  a.log_timers_to_tensorboard = true;
  EXPECT_EQ(timing_scalars(a, sample_line()).at(0).name, "iteration-time");
  EXPECT_EQ(timing_scalars(a, sample_line()).at(0).value, 1.5);
  a.log_validation_ppl_to_tensorboard = true;
  const auto validation = validation_scalars(a, {{"lm loss", 0}}, 5, 40);
  ASSERT_EQ(validation.size(), 4u);
  EXPECT_EQ(validation[0].name, "lm loss validation");
  EXPECT_EQ(validation[3].name, "lm loss validation ppl vs samples");
  EXPECT_EQ(validation[3].value, 1);
}

TEST(MetricsJson, IsAnObjectALine) {
  TrainingLine line = sample_line();
  line.losses.emplace_back("z_loss", NAN);
  const std::string text = metrics_json(line);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["iteration"], 5);
  EXPECT_EQ(json["lm loss"], 2.5);
  EXPECT_TRUE(json["z_loss"].is_null());
  EXPECT_FALSE(json.contains("params_norm"));
  EXPECT_EQ(nlohmann::json::parse(validation_json({{"lm loss", 3}}, 5, 40))["lm loss validation"],
            3);
}

TEST(Timers, MeasureWhatTheLevelAsksFor) {
  Timers timers(1);
  const auto start = Timers::Clock::now();
  const auto at = [&](int seconds) { return start + std::chrono::seconds(seconds); };
  timers.start("optimizer", 1, at(0));
  timers.stop("optimizer", at(2));
  timers.start("optimizer", 1, at(5));
  timers.start("forward-compute", 2, at(0));
  EXPECT_EQ(timers.seconds("optimizer", false, at(6)), 3);
  EXPECT_EQ(timers.seconds("optimizer", true, at(7)), 4);
  EXPECT_EQ(timers.seconds("optimizer", true, at(9)), 2);  // it went on
  timers.stop("optimizer", at(10));
  timers.stop("optimizer", at(20));
  EXPECT_EQ(timers.seconds("optimizer", true, at(30)), 1);
  EXPECT_EQ(timers.seconds("forward-compute", true, at(9)), 0);
  EXPECT_EQ(timers_of_level(0).size(), 0u);
  EXPECT_EQ(timers_of_level(1).size(), 12u);
  EXPECT_EQ(timers_of_level(2).size(), 24u);
}

TEST(TimerLines, AreMegatrons) {
  const std::vector<RankTimes> times = {
      {"forward-backward", {0.25, 0.5}}, {"optimizer", {0, 0.125}}, {"params-all-gather", {0, 0}}};
  EXPECT_EQ(timer_lines(times, "minmax", 1),
            "(min, max) time across ranks (ms):\n"
            "    forward-backward ...............................: (250.00, 500.00)\n"
            "    optimizer ......................................: (125.00, 125.00)\n");
  EXPECT_EQ(timer_lines(times, "max", 10),
            "max time across ranks (ms):\n"
            "    forward-backward ...............................: 50.00\n"
            "    optimizer ......................................: 12.50\n");
  EXPECT_EQ(timer_lines(times, "all", 1),
            "times across ranks (ms):\n  forward-backward:\n     rank  0: 250.00\n     rank  1: "
            "500.00\n  optimizer:\n     rank  1: 125.00\n");
  EXPECT_EQ(timer_lines({}, "minmax", 1), "");
}

}  // namespace
}  // namespace ferry
