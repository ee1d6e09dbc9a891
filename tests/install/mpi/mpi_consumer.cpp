// A program that has MPI for purposes of its own and lends ferry a communicator.
#include <ckpt/group/mpi/mpi_group.h>
#include <ckpt/memory/async_saver.h>
#include <mpi.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

namespace {

constexpr int64_t kRows = 100;

// Each rank has as many rows of a tensor.
void save(const char* run, const std::shared_ptr<ferry::Group>& group) {
  const int64_t rank = group->rank(), ranks = group->size();
  std::vector<float> rows(kRows, static_cast<float>(rank));
  ferry::Snapshot snapshot;
  snapshot.iteration = 1;
  snapshot.tensors.push_back({"weight",
                              ferry::DType::f32,
                              {kRows * ranks},
                              {{{kRows * rank}, {kRows}}},
                              reinterpret_cast<const std::byte*>(rows.data())});
  ferry::AsyncSaver saver(ferry::posix_file_system(), run, group);
  auto ticket = saver.save(std::move(snapshot));
  MPI_Barrier(MPI_COMM_WORLD);  // the caller's own messages go on
  ticket.wait();
  saver.finish();
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, failed = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  try {
    if (argc == 2) save(argv[1], ferry::mpi_group(MPI_COMM_WORLD));
  } catch (const ferry::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    failed = 1;
  }
  MPI_Finalize();
  return argc == 2 ? failed : 2;
}
