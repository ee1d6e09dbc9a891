// ferry runs over logs of Megatron-LM and of ferry train, and what runs after saves.
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "ckpt/base/error.h"
#include "ckpt/io/forwarding_file_system.h"
#include "tests/io/memory_file_system.h"
#include "tests/tools/program.h"
#include "tools/runs/run_list.h"

namespace ferry::tool {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct Runs : test::Program {
  static std::string log() {
    return std::string(FERRY_FIXTURES) + "/megatron_logs/llama_tp2pp2_full.log";
  }
  void make(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((folder / name).parent_path());
    write(path(name), content);
  }
  static std::string lines(int first, int last, double loss) {
    std::string text;
    for (int i = first; i <= last; ++i) {
      text += fmt::format(
          " [2026-11-22 06:27:19.5] iteration {:8d}/{:8d} | elapsed time per iteration (ms): 10.0 "
          "| "
          "global batch size: 8 | lm loss: {:.6E} | grad norm: 0.5 |\n",
          i, 10, loss - i * 0.1);
    }
    return text;
  }
  test::Outcome train(const std::string& more) const {
    const std::string fixtures = FERRY_FIXTURES;
    return ferry("train --device cpu --load " + fixtures +
                 "/megatron/f32_qwen3 --use-checkpoint-args --save " + path("run") +
                 " --data-path " + fixtures + "/data/corpus_a_text_document --data-cache-path " +
                 path("cache") +
                 " --split 100,0,0 --seq-length 64 --micro-batch-size 2 --global-batch-size 8 "
                 "--lr 1e-3 --min-lr 1e-4 --lr-decay-iters 100 --lr-warmup-iters 5 "
                 "--lr-decay-style cosine --weight-decay 0.1 --clip-grad 1.0 --adam-beta2 0.95 "
                 "--tokenizer-type NullTokenizer --vocab-size 250 "
                 "--make-vocab-size-divisible-by 32 --log-interval 1 --attention-dropout 0 "
                 "--hidden-dropout 0 --train-iters 9 --seed 11 --eval-iters 0 "
                 "--transformer-impl local --override-opt-param-scheduler --save-interval 2 " +
                 more);
  }
};

TEST_F(Runs, AreListedWithTheirState) {
  make("a/run.log", lines(1, 10, 5));
  make("b/logs/job-1.out", lines(1, 4, 5) + "[exiting program after receiving SIGTERM.]\n");
  std::filesystem::create_directories(folder / "b/checkpoints");
  std::filesystem::copy(std::string(FERRY_FIXTURES) + "/megatron/hot_llama",
                        folder / "b/checkpoints", std::filesystem::copy_options::recursive);
  make("c/notes.txt", "none");
  make("d/other.log", "nothing of a run\n");
  for (const char* name : {"a/run.log", "b/logs/job-1.out"}) {
    std::filesystem::last_write_time(
        path(name), std::filesystem::file_time_type::clock::now() - std::chrono::hours(24));
  }
  const json runs = json::parse(ferry("runs list --json " + folder.string()).out).at("runs");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs.at(0).at("name"), "a");
  EXPECT_EQ(runs.at(0).at("state"), "finished");
  EXPECT_EQ(runs.at(0).at("iteration"), 10);
  EXPECT_DOUBLE_EQ(runs.at(0).at("loss").get<double>(), 4.0);
  EXPECT_EQ(runs.at(1).at("name"), "b");
  EXPECT_EQ(runs.at(1).at("state"), "stopped");
  EXPECT_EQ(runs.at(1).at("last_good_iteration"), 5);
  EXPECT_THAT(ferry("runs list " + folder.string()).out, HasSubstr("10 of 10"));
}

// An end that is logged is one, however young the files are.
TEST_F(Runs, ThatLogTheirEndAreNoLongerActive) {
  const std::string exit = "[exiting program at iteration 4] datetime: 2026-11-22 06:28:00.5 \n";
  const std::string error =
      "ferry: error: the loss of iteration 5 is not finite; nothing is saved of it\n";
  make("at_work/run.log", lines(1, 4, 5));
  make("failed/run.log", lines(1, 4, 5) + error);
  make("stopped/run.log", lines(1, 4, 5) + exit);
  // Its second job goes on, and the log of its first one comes last by name.
  make("went_on/job-10.out",
       "[before the start of training step] datetime: 2026-11-22 06:29:00 \n");
  make("went_on/job-9.out", lines(1, 4, 5) + exit);
  const json runs = json::parse(ferry("runs list --json " + folder.string()).out).at("runs");
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs.at(0).at("state"), "active");
  EXPECT_EQ(runs.at(1).at("state"), "stopped");
  EXPECT_THAT(runs.at(1).at("exit").get<std::string>(), HasSubstr("iteration 5 is not finite"));
  EXPECT_TRUE(runs.at(1).at("loss").is_null());
  EXPECT_EQ(runs.at(1).at("not_finite"), 1);
  EXPECT_EQ(runs.at(2).at("state"), "stopped");
  EXPECT_EQ(runs.at(3).at("state"), "active");
  const std::string table = ferry("runs list " + folder.string()).out;
  EXPECT_THAT(table, testing::ContainsRegex("failed +stopped +4 of 10 +nan"));
  EXPECT_THAT(table, HasSubstr("2026-11-22 06:28:00 exiting program at iteration 4"));
}

TEST_F(Runs, AreListedBelowFoldersAlone) {
  make("a.log", lines(1, 2, 5));
  EXPECT_THAT(ferry("runs list " + path("none")).err, HasSubstr("none does not exist"));
  const test::Outcome file = ferry("runs list " + path("a.log"));
  EXPECT_EQ(file.code, 2);
  EXPECT_THAT(file.err, HasSubstr("'ferry runs follow' and 'compare' take a log"));
}

// Folders of other people, which may not be read, are named and hide no run.
TEST(RunList, FoldersThatCannotBeReadAreNamed) {
  struct Locked : ForwardingFileSystem {
    using ForwardingFileSystem::ForwardingFileSystem;
    std::vector<std::string> list(const std::string& path) const override {
      if (path.ends_with("locked")) fail(ErrorKind::io, "cannot list {}: Permission denied", path);
      return ForwardingFileSystem::list(path);
    }
  };
  const auto memory = std::make_shared<MemoryFileSystem>();
  memory->put("/runs/a/run.log", Runs::lines(1, 2, 5));
  memory->put("/runs/locked/run.log", "");
  const Locked files(memory);
  std::vector<std::string> unreadable;
  const auto found = find_runs(files, "/runs", unreadable);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found.front().name, "a");
  EXPECT_THAT(unreadable, ElementsAre("cannot list /runs/locked: Permission denied"));
  EXPECT_THROW(find_runs(files, "/runs/locked", unreadable), Error);
}

// A loss that is not a number is the one thing that the list must not hide.
TEST_F(Runs, ThatDivergedAreListedSo) {
  const std::string of_nan = " iteration 5/ 10 | lm loss: nan | grad norm: 0.5 |\n";
  make("diverged/run.log", lines(1, 4, 5) + of_nan);
  make("counted/run.log", lines(1, 4, 5) +
                              " iteration 5/ 10 | number of skipped iterations: 1 | number of nan "
                              "iterations: 1 |\n");
  make("from_the_first/run.log", " iteration 1/ 10 | lm loss: inf | grad norm: 0.5 |\n");
  make("recovered/run.log", lines(1, 4, 5) + of_nan + lines(6, 7, 5));
  make("started_again/run.log", lines(1, 4, 5) + of_nan + lines(4, 4, 5));
  const json runs = json::parse(ferry("runs list --json " + folder.string()).out).at("runs");
  ASSERT_EQ(runs.size(), 5u);
  EXPECT_TRUE(runs.at(0).at("loss").is_null());
  EXPECT_EQ(runs.at(0).at("not_finite"), 1);
  EXPECT_THAT(runs.at(0).at("name"), "counted");
  EXPECT_TRUE(runs.at(1).at("loss").is_null());
  EXPECT_TRUE(runs.at(2).at("loss").is_null());
  EXPECT_EQ(runs.at(2).at("not_finite"), 1);
  EXPECT_DOUBLE_EQ(runs.at(3).at("loss").get<double>(), 4.3);
  EXPECT_EQ(runs.at(3).at("not_finite"), 1);
  EXPECT_DOUBLE_EQ(runs.at(4).at("loss").get<double>(), 4.6);
  const std::string table = ferry("runs list " + folder.string()).out;
  EXPECT_THAT(table, testing::ContainsRegex("diverged +[a-z]+ +5 of 10 +nan"));
  EXPECT_THAT(table, testing::ContainsRegex("from_the_first +[a-z]+ +1 of 10 +inf"));
}

// What `ferry launch` makes, before and after its first save.
TEST_F(Runs, OfExperimentFoldersAreReadWhereverRunsAre) {
  make("a/launch/settings.sh", "NAME=a\n");
  make("a/logs/job-1.out", lines(1, 4, 5));
  EXPECT_THAT(ferry("runs list " + folder.string()).out, HasSubstr("\na  "));
  std::filesystem::create_directories(folder / "a/checkpoints");
  for (const char* command :
       {"runs follow --once ", "runs compare ", "report --training --json "}) {
    EXPECT_EQ(ferry(command + path("a")).code, 0) << command;
  }
  std::filesystem::copy(std::string(FERRY_FIXTURES) + "/megatron/hot_llama",
                        folder / "a/checkpoints", std::filesystem::copy_options::recursive);
  EXPECT_THAT(ferry("runs follow --once " + path("a")).out, HasSubstr("iteration 4/10"));
  EXPECT_THAT(ferry("runs export " + path("a") + " -o -").out, HasSubstr("\n4,"));
  const json report = json::parse(ferry("report --training --json " + path("a")).out);
  EXPECT_EQ(report.at("runs").at(0).at("saves").at(0).at("iteration"), 5);
  EXPECT_EQ(report.at("runs").at(0).at("last_iteration"), 4);
}

TEST_F(Runs, ThatAreAskedToEndMayHaveAnExitCode) {
  EXPECT_EQ(train("--exit-interval 6").code, 0);
  // On from iteration 6, as from the third of the nine.
  const std::string again = "--stopped-exit-code 75 --load " + path("run") + " --exit-interval ";
  EXPECT_EQ(train(again + "8").code, 75);
  EXPECT_EQ(train(again + "9").code, 0);  // the last iteration
}

// As `srun -l` writes them.
TEST_F(Runs, LinesMayBeginWithATasksNumber) {
  std::string numbered;
  std::istringstream plain(lines(1, 4, 5));
  for (std::string line; std::getline(plain, line);) numbered += "1: " + line + "\n";
  make("a/run.log", numbered);
  const json runs = json::parse(ferry("runs list --json " + folder.string()).out).at("runs");
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs.at(0).at("iteration"), 4);
  EXPECT_DOUBLE_EQ(runs.at(0).at("loss").get<double>(), 4.6);
}

TEST_F(Runs, ShowTheirJob) {
  make("a/run.log", lines(1, 4, 5));
  make("bin/squeue", "#!/bin/sh\necho '17|PENDING|a|/x'\necho '16|RUNNING|a|/x'\n");
  ::chmod(path("bin/squeue").c_str(), 0755);
  const std::string old = std::getenv("PATH");
  ::setenv("PATH", (path("bin") + ":" + old).c_str(), 1);
  const json listed = json::parse(ferry("runs list --json " + folder.string()).out);
  ::setenv("PATH", old.c_str(), 1);
  EXPECT_EQ(listed.at("queue"), true);
  EXPECT_EQ(listed.at("runs").at(0).at("job"), "16 RUNNING");
  EXPECT_EQ(listed.at("runs").at(0).at("state"), "running");
  EXPECT_EQ(parse_jobs("1|RUNNING|a|b|c\n\nx\n2|PENDING||").size(), 2u);
}

TEST_F(Runs, AreFollowedToTheirEnd) {
  const test::Outcome once = ferry("runs follow --once --lines 2 " + log());
  EXPECT_EQ(once.code, 0);
  EXPECT_THAT(once.out, HasSubstr("iteration 5/30"));
  EXPECT_THAT(once.out, Not(HasSubstr("iteration 1/30")));
  make("grows.log", lines(1, 3, 5));
  // The rest comes while it is followed; it ends by itself with iteration 10.
  const std::string grow =
      "(sleep 1; tail -n +4 " + path("all.log") + " >> " + path("grows.log") + ") & ";
  make("all.log", lines(1, 10, 5));
  ASSERT_EQ(std::system((grow + "true").c_str()), 0);
  const test::Outcome all = ferry("runs follow " + path("grows.log"));
  EXPECT_EQ(all.code, 0);
  EXPECT_THAT(all.out, HasSubstr("iteration 10/10"));
  EXPECT_EQ(ferry("runs follow --once " + path("none")).code, 3);
  const test::Outcome until = ferry("runs follow --until 3 " + path("all.log"));
  EXPECT_THAT(until.out, HasSubstr("iteration 3/10"));
  EXPECT_THAT(until.out, Not(HasSubstr("iteration 4/10")));
}

TEST_F(Runs, AreFollowedUntilASignalWithoutAWordOfIt) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const std::string command = std::string("exec ") + FERRY_PROGRAM + " runs follow --until 11 " +
                                log() + " >" + path("out") + " 2>" + path("err");
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      std::_Exit(127);
    }
    // By then it takes signals.
    for (int i = 0; i < 600 && read(path("out")).empty(); ++i) ::usleep(50'000);
    ::kill(child, signal);
    const int status = end_of(child);
    EXPECT_TRUE(WIFEXITED(status)) << signal;
    EXPECT_EQ(WEXITSTATUS(status), 130) << signal;
    EXPECT_THAT(read(path("out")), HasSubstr("iteration 5/30")) << signal;
    EXPECT_EQ(read(path("err")), "") << signal;
    std::filesystem::remove(path("out"));
  }
}

TEST_F(Runs, AreComparedIterationByIteration) {
  make("a.log", lines(1, 10, 5));
  make("b.log", lines(1, 4, 5) + lines(5, 10, 6));
  const json listed = json::parse(
      ferry("runs compare --json " + path("a.log") + " " + path("a.log") + " " + path("b.log"))
          .out);
  const json& runs = listed.at("runs");
  EXPECT_EQ(runs.at(1).at("first_other_iteration"), nullptr);
  EXPECT_EQ(runs.at(1).at("largest_difference"), 0);
  EXPECT_EQ(runs.at(2).at("first_other_iteration"), 5);
  EXPECT_NEAR(runs.at(2).at("largest_difference").get<double>(), 1, 1e-9);
  EXPECT_EQ(runs.at(2).at("common_iterations"), 10);
  EXPECT_NEAR(runs.at(0).at("least").get<double>(), 4, 1e-9);
  EXPECT_NEAR(runs.at(2).at("least").get<double>(), 4.6, 1e-9);
  EXPECT_THAT(ferry("runs compare " + path("b.log")).out, HasSubstr("4.6 "));
  const test::Outcome unknown = ferry("runs compare --metric 'lm los' " + path("a.log"));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("no run has the metric 'lm los'; the nearest is lm loss; "
                                     "there are global_batch_size, grad_norm, lm loss"));
}

// A loss that is not a number is another one, and neither the least nor a distance.
TEST_F(Runs, AreComparedByFiniteNumbers) {
  make("a.log", lines(1, 10, 5));
  make("b.log", lines(1, 8, 5) + lines(9, 9, NAN) + lines(10, 10, 6));
  const json listed =
      json::parse(ferry("runs compare --json " + path("a.log") + " " + path("b.log")).out);
  const json& run = listed.at("runs").at(1);
  EXPECT_EQ(run.at("first_other_iteration"), 9);
  EXPECT_NEAR(run.at("least").get<double>(), 4.2, 1e-9);
  EXPECT_NEAR(run.at("largest_difference").get<double>(), 1, 1e-9);
}

TEST_F(Runs, AreExported) {
  // Iterations 3 and 4 were done again, and 5 is yet to come again.
  make("run.log", lines(1, 5, 5) + lines(3, 4, 6));
  const test::Outcome csv = ferry("runs export -o - " + path("run.log"));
  EXPECT_EQ(csv.out,
            "iteration,global_batch_size,grad_norm,lm loss,milliseconds\n1,8,0.5,4.9,10\n"
            "2,8,0.5,4.8,10\n3,8,0.5,5.7,10\n4,8,0.5,5.6,10\n");
  make("a.csv.partial", "somebody's");
  EXPECT_EQ(ferry("runs export -o " + path("a.csv") + " " + path("run.log")).code, 0);
  EXPECT_EQ(read(path("a.csv.partial")), "somebody's");
  std::filesystem::remove(path("a.csv.partial"));
  EXPECT_THAT(ferry("runs export --to tensorboard -o - " + path("run.log")).err,
              HasSubstr("writes a folder"));
  EXPECT_EQ(read(path("a.csv")), csv.out);
  EXPECT_EQ(ferry("runs export -o " + path("a.csv") + " " + path("run.log")).code, 2);
  EXPECT_EQ(ferry("runs export --to tensorboard -o " + path("events") + " " + path("run.log")).code,
            0);
  const auto event = std::filesystem::directory_iterator(path("events"))->path();
  EXPECT_THAT(event.filename().string(), HasSubstr("events.out.tfevents."));
  EXPECT_THAT(read(event.string()), HasSubstr("lm loss"));
  EXPECT_EQ(ferry("runs export -o " + path("none.csv") + " " + path("a.csv")).code, 3);
  EXPECT_THAT(left(), testing::UnorderedElementsAre("a.csv", "events", "run.log"));
}

TEST_F(Runs, AreCopiedBetweenProjects) {
  make("p/a/run.log", lines(1, 2, 5));
  make("p/a/metrics.jsonl",
       "{\"iteration\":1,\"lm loss\":NaN}\n{\"iteration\":2,\"lm loss\":3.5,\"grad_norm\":null}\n"
       "{\"note\":\"x: NaN\",\"iteration\":3}\n{\"iteration\":" +
           std::string(1000000, ' ') + "4}\n" + std::string(500000, '[') + "\n");
  make("p/a/weights.bin", "large");
  const std::string copy = "runs copy --from " + path("p") + " --runs a --to ";
  EXPECT_EQ(ferry(copy + path("q")).code, 0);
  EXPECT_EQ(read(path("q/a/run.log")), lines(1, 2, 5));
  EXPECT_THAT(read(path("q/a/metrics.jsonl")),
              AllOf(HasSubstr("{\"iteration\":1}\n{\"iteration\":2,\"lm loss\":3.5}\n"),
                    HasSubstr("{\"note\":\"x: NaN\",\"iteration\":3}\n")));
  EXPECT_FALSE(std::filesystem::exists(path("q/a/weights.bin")));
  EXPECT_EQ(ferry(copy + path("q")).code, 2);
  EXPECT_EQ(ferry(copy + path("p")).code, 0);
  EXPECT_TRUE(std::filesystem::exists(path("p/a-copy/run.log")));
  EXPECT_EQ(ferry(copy + path("q") + " --names b").code, 0);
  EXPECT_EQ(ferry(copy + path("q") + " --names b c").code, 2);
  EXPECT_EQ(ferry(copy + path("q") + " --names ../b").code, 2);
  EXPECT_EQ(ferry("runs copy --from " + path("p") + " --runs none --to " + path("q")).code, 3);
}

// It is found by "pgrep -x ferry".
TEST_F(Runs, AProcessHasTheProgramsName) {
  ASSERT_EQ(train("--after-save 'cat /proc/$PPID/comm > " + path("name") + "'").code, 0);
  EXPECT_EQ(read(path("name")), "ferry\n");
}

TEST_F(Runs, CommandsRunAfterSaves) {
  const test::Outcome run = train(
      "--after-save 'ls $FERRY_CHECKPOINT/metadata.json && echo "
      "$FERRY_ITERATION $FERRY_RUN >> " +
      path("log") + "'");
  ASSERT_EQ(run.code, 0) << run.err;
  // Saves during a run of the command share the next one: only the last save is sure to have it.
  EXPECT_THAT(read(path("log")), HasSubstr("9 " + path("run") + "\n"));
}

// However long its command takes, a checkpoint stays until that is done.
TEST_F(Runs, CheckpointsStayForTheirCommands) {
  const test::Outcome run = train(
      "--keep-last 1 --after-save 'sleep 0.3; ls $FERRY_CHECKPOINT >/dev/null || echo gone >> " +
      path("log") + "'");
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_FALSE(std::filesystem::exists(path("log")));
  EXPECT_FALSE(std::filesystem::exists(path("run/iter_0000008")));
  EXPECT_TRUE(std::filesystem::exists(path("run/iter_0000009")));
}

TEST_F(Runs, CommandsThatFailOrHangStopNothing) {
  const test::Outcome fails = train("--after-save 'exit 3'");
  EXPECT_EQ(fails.code, 0) << fails.err;
  EXPECT_THAT(fails.err, HasSubstr("iteration 9 failed: exit code 3"));
  std::filesystem::remove_all(path("run"));
  const test::Outcome hangs =
      train("--after-save 'sleep 1000' --after-save-seconds 1 --save-interval 100");
  EXPECT_EQ(hangs.code, 0) << hangs.err;
  EXPECT_THAT(hangs.err, HasSubstr("it took longer than 1 s"));
  EXPECT_TRUE(std::filesystem::exists(path("run/iter_0000009")));
}

}  // namespace
}  // namespace ferry::tool
