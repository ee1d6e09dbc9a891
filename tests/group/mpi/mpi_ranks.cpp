// Processes as the ranks of a group, for check_mpi_group.sh: mpi_ranks CASE [NUMBER]. Prints what
// is worth checking and exits with 6 where an Error ended it.
#include <mpi.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <thread>

#include "ckpt/group/group.h"
#include "ckpt/group/mpi/mpi_group.h"
#include "ckpt/group/mpi/mpi_transport.h"
#include "ckpt/group/mpi/process_group.h"
#include "tests/group/random_operations.h"

namespace ferry::test {
namespace {

constexpr int kErrorExit = 6;

using Clock = std::chrono::steady_clock;

void expect(bool holds, const char* what) {
  if (!holds) fail(ErrorKind::internal, "not so: {}", what);
}

// Until another rank's error ends it.
[[noreturn]] void repeat(Group& group) {
  while (true) group.exchange("again");
}

// In some thousand pieces, in a few, and in one.
void random_operations(uint32_t seed) {
  for (const size_t piece_bytes : {size_t{300}, size_t{1} << 16, MpiTransport::kPieceBytes}) {
    const auto group = message_group(std::make_shared<MpiTransport>(MPI_COMM_WORLD, piece_bytes));
    RandomOperations(500'000).run(*group, seed, 40);
  }
}

void ranks_of_a_communicator() {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &reversed);
  // More than MPICH has communicators at a time.
  for (int i = 0; i < 2200; ++i) mpi_group(reversed);
  const auto group = mpi_group(reversed);
  MPI_Comm_free(&reversed);
  expect(group->broadcast(std::to_string(rank)) == std::to_string(size - 1), "rank 0 is the last");
}

// The group's threads run at the same time as each other and as the caller's own messages.
void threads() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  const auto part = group->split(group->rank() % 2, 0);
  const auto backwards = group->split(0, -group->rank());
  std::vector<std::jthread> threads;
  for (Group* each : {group.get(), part.get(), backwards.get()}) {
    threads.emplace_back([each] { RandomOperations(100'000).run(*each, 7, 60); });
  }
  for (int i = 0; i < 200; ++i) MPI_Barrier(MPI_COMM_WORLD);
}

void one_throws() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  group->barrier();
  or_abort(*group, [&] {
    if (group->rank() == 1) fail(ErrorKind::corrupt, "{} is broken", "one.file");
    repeat(*group);
  });
}

void one_is_out_of_memory() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  or_abort(*group, [&] {
    if (group->rank() == group->size() - 1) throw std::bad_alloc();
    repeat(*group);
  });
}

// Some are in other operations, and of other groups.
void one_throws_elsewhere() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  const auto part = group->split(group->rank() % 2, 0);
  or_abort(*part, [&] {
    if (group->rank() == group->size() - 1) fail(ErrorKind::mismatch, "{} of a part", "error");
    part->size() > 1 && group->rank() % 2 == 1 ? part->barrier() : group->barrier();
    repeat(*group);
  });
}

// Nobody takes what all send; MPI_Finalize must not wait for it.
void much_is_under_way() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  group->barrier();
  or_abort(*group, [&] {
    if (group->rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      fail(ErrorKind::io, "no disk");
    }
    group->gather(std::string(50'000'000, 'x'));
    repeat(*group);
  });
}

// A thread of a rank ends the operation that another one of it is in.
void while_one_waits() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    if (group->rank() == 0) group->abort(Error(ErrorKind::cancelled, "enough"));
  });
  if (group->rank() != 1) repeat(*group);
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  group->barrier();
}

void one_is_killed() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  group->barrier();
  if (group->rank() == 1) std::raise(SIGKILL);
  repeat(*group);
}

// One learns of nothing, as it is busy for long: the others do not wait for it.
void one_is_busy() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  group->barrier();
  if (group->rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  try {
    if (group->rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // all have left the barrier
      fail(ErrorKind::io, "no disk");
    }
    repeat(*group);
  } catch (const Error& error) {
    std::printf("rank %d: %s\n", group->rank(), error.what());
    std::fflush(stdout);
    abort_with_current_exception(*group);
    std::this_thread::sleep_for(std::chrono::seconds(1));
    MPI_Abort(MPI_COMM_WORLD, kErrorExit);
  }
}

double cpu_seconds() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void waiting_is_cheap() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  group->barrier();
  const double before = cpu_seconds();
  if (group->rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(3));
  group->barrier();
  const double used = cpu_seconds() - before;
  if (used > 0.3)
    fail(ErrorKind::internal, "rank {} used {} s while it waited", group->rank(), used);
}

// Only the fastest tenth counts, as the machine may be busy.
void small_messages_are_fast() {
  const auto group = mpi_group(MPI_COMM_WORLD);
  std::vector<double> times;
  for (int i = 0; i < 500; ++i) {
    group->barrier();
    const auto begin = Clock::now();
    group->gather("small");
    group->broadcast("small");
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  const double quick = times[times.size() / 10], usual = times[times.size() / 2];
  if (group->rank() == 0) {
    std::printf("gather and broadcast: %.3f ms, usually %.3f ms\n", quick, usual);
  }
  // However busy the machine is: far less than ranks take that sleep between two looks.
  expect(quick < 20, "a gather and a broadcast take less than 20 ms");
}

// More than an int counts, through ranks that pass it on.
void large(size_t bytes) {
  const auto group = mpi_group(MPI_COMM_WORLD);
  const auto fill = static_cast<char>('a' + group->rank());
  const std::vector<std::string> all = group->gather(std::string(bytes, fill));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    expect(all[rank].size() == bytes, "all bytes have come");
    expect(all[rank].front() == static_cast<char>('a' + rank), "they are the rank's");
    expect(all[rank].find_first_not_of(all[rank].front()) == std::string::npos, "all of them are");
  }
}

std::string refusal(MPI_Comm communicator, GroupThreads threads) {
  try {
    mpi_group(communicator, threads)->barrier();
    return "none";
  } catch (const Error& error) {
    return fmt::format("{}: {}", name(error.kind()), error.what());
  }
}

void refusals() {
  const auto print = [](const char* when, const std::string& text) {
    std::printf("%s: %s\n", when, text.c_str());
  };
  print("before", refusal(MPI_COMM_WORLD, GroupThreads::one));
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  print("any", refusal(MPI_COMM_WORLD, GroupThreads::any));
  print("one", refusal(MPI_COMM_WORLD, GroupThreads::one));
  print("null", refusal(MPI_COMM_NULL, GroupThreads::one));
  MPI_Finalize();
  print("after", refusal(MPI_COMM_WORLD, GroupThreads::one));
}

// As the program ferry does: rank 0 speaks for all. Rank 1 fails while `busy` is; nobody is at -1.
int processes(int busy) {
  std::shared_ptr<Group> group = process_group();
  const int rank = group->rank();
  try {
    group->barrier();
    if (rank == busy) std::this_thread::sleep_for(std::chrono::seconds(60));
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // all have left the barrier
      fail(ErrorKind::io, "no disk");
    }
    repeat(*group);
  } catch (const Error& error) {
    abort_with_current_exception(*group);
    if (rank == 0) std::printf("reported: %s\n", error.what());
  }
  std::fflush(stdout);
  end_process_group(std::move(group), kErrorExit, [rank](const Error& error) {
    std::printf("reported by rank %d: %s\n", rank, error.what());
    std::fflush(stdout);
  });
  return kErrorExit;
}

int run(const std::string& name, const char* number) {
  const uint64_t count = number ? std::strtoull(number, nullptr, 10) : 1;
  const std::map<std::string, std::function<void()>> cases = {
      {"random", [&] { random_operations(static_cast<uint32_t>(count)); }},
      {"communicator", ranks_of_a_communicator},
      {"threads", threads},
      {"throw", one_throws},
      {"memory", one_is_out_of_memory},
      {"elsewhere", one_throws_elsewhere},
      {"pending", much_is_under_way},
      {"overlap", while_one_waits},
      {"kill", one_is_killed},
      {"busy", one_is_busy},
      {"cheap", waiting_is_cheap},
      {"fast", small_messages_are_fast},
      {"large", [&] { large(count); }},
  };
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  try {
    cases.at(name)();
    return 0;
  } catch (const Error& error) {
    std::printf("rank %d ends: %s: %s\n", rank, ferry::name(error.kind()).data(), error.what());
  } catch (const std::bad_alloc&) {
    std::printf("rank %d ends: bad_alloc\n", rank);
  }
  return kErrorExit;
}

}  // namespace
}  // namespace ferry::test

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const std::string name = argv[1];
  if (name == "refusals") {
    ferry::test::refusals();
    return 0;
  }
  if (name == "processes") return ferry::test::processes(argc > 2 ? std::atoi(argv[2]) : -1);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const int code = ferry::test::run(name, argc > 2 ? argv[2] : nullptr);
  std::fflush(stdout);
  // The owner of MPI, not the group, ends it.
  MPI_Finalize();
  return code;
}
