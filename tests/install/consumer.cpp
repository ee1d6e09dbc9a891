#include <ckpt/engine/engine.h>
#include <ckpt/open.h>
#include <convert/convert.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const ferry::Checkpoint checkpoint = ferry::open_checkpoint(ferry::posix_file_system(), argv[1]);
  const ferry::Entry& first = checkpoint.catalog->entries.at(0);
  const std::string bytes = ferry::read_tensor(checkpoint.catalog, first, 1 << 30);
  std::printf("%s: %zu tensors, %s has %zu bytes\n", ferry::recognise(checkpoint).family.c_str(),
              checkpoint.catalog->entries.size(), first.name.c_str(), bytes.size());
  return bytes.size() == static_cast<size_t>(first.bytes()) ? 0 : 1;
}
