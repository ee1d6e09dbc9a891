// To be preloaded: in the process of rank SCARCE_RANK three allocations fail, from number SCARCE_AT
// on. Where that is 0, says at the end how many there were, in the file SCARCE_COUNT.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

bool is_rank(const char* rank) {
  return *rank && (std::strcmp(variable("OMPI_COMM_WORLD_RANK"), rank) == 0 ||
                   std::strcmp(variable("PMI_RANK"), rank) == 0);
}

class Scarcity {
 public:
  Scarcity()
      : is_here_(is_rank(variable("SCARCE_RANK"))),
        first_(std::strtoull(variable("SCARCE_AT"), nullptr, 10)) {}
  ~Scarcity() {
    std::FILE* const file =
        is_here_ && first_ == 0 ? std::fopen(variable("SCARCE_COUNT"), "w") : nullptr;
    if (!file) return;
    std::fprintf(file, "%llu\n", count_.load());
    std::fclose(file);
    is_here_ = false;
  }
  bool has_one_more() {
    if (!is_here_) return true;
    const unsigned long long number = ++count_;
    return first_ == 0 || number < first_ || number >= first_ + 3;
  }

 private:
  bool is_here_;
  unsigned long long first_;
  std::atomic<unsigned long long> count_{0};
};

Scarcity& scarcity() {
  static Scarcity scarcity;
  return scarcity;
}

}  // namespace

void* operator new(size_t bytes) {
  void* const memory = scarcity().has_one_more() ? std::malloc(bytes ? bytes : 1) : nullptr;
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
