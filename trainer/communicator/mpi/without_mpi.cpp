#include "trainer/communicator/mpi/process_links.h"

namespace ferry {

// process_group() made a group of one.
std::shared_ptr<Links> process_links(const std::shared_ptr<Group>& group) {
  return thread_links({group}).front();
}

}  // namespace ferry
