// libFuzzer's entry. LOCKSTEP_FUZZ_TARGET names the target; scripts/fuzz sets it.
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lockstep::fuzz;
  static const Target* const target = [] {
    const char* const name = std::getenv("LOCKSTEP_FUZZ_TARGET");
    const Target* const found = find_target(name ? name : "");
    if (found) return found;
    std::fputs("LOCKSTEP_FUZZ_TARGET: expected the name of a target\n", stderr);
    std::exit(1);
  }();
  try {
    (void)target->read({reinterpret_cast<const char*>(data), size});
  } catch (const BrokenPromise& broken) {
    std::fprintf(stderr, "broken promise: %s\n", broken.what.c_str());
    std::abort();
  }
  return 0;
}
