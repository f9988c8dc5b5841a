#include "core/base/floating_point_modes.hpp"

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace lockstep {
namespace {

#if defined(__x86_64__)

constexpr unsigned long flush_results = 0x8000, flush_operands = 0x0040, rounding = 0x6000;

unsigned long control() {
  return _mm_getcsr();
}
void set_control(unsigned long word) {
  _mm_setcsr(static_cast<unsigned>(word));
}

#elif defined(__aarch64__)

// FZ and FZ16 flush operands as well.
constexpr unsigned long flush_results = 1UL << 24 | 1UL << 19, flush_operands = 1UL << 0, rounding = 3UL << 22;

unsigned long control() {
  unsigned long word = 0;
  asm volatile("mrs %0, fpcr" : "=r"(word));
  return word;
}
void set_control(unsigned long word) {
  asm volatile("msr fpcr, %0" : : "r"(word));
}

#else

constexpr unsigned long flush_results = 0, flush_operands = 0, rounding = 0;

unsigned long control() {
  return 0;
}
void set_control(unsigned long) {}

#endif

constexpr unsigned long modes = flush_results | flush_operands | rounding;

/// The x87 unit of x86 has a word of its own, which std::fegetround reads.
const char* rounding_text() {
  switch (std::fegetround()) {
    case FE_TONEAREST: return (control() & rounding) == 0 ? "" : "results are not rounded to the nearest number";
    case FE_UPWARD: return "results are rounded upward";
    case FE_DOWNWARD: return "results are rounded downward";
    case FE_TOWARDZERO: return "results are rounded toward 0";
    default: return "results are rounded in an unknown way";
  }
}

}  // namespace

std::string changed_floating_point_modes() {
  std::string text = rounding_text();
  const auto add = [&text](unsigned long bits, const char* what) {
    if (control() & bits) (text += text.empty() ? "" : ", ") += what;
  };
  add(flush_results, "subnormal results become 0 (FTZ)");
  add(flush_operands, "subnormal operands count as 0 (DAZ)");
  return text;
}

void reset_floating_point_modes() {
  if (std::fegetround() != FE_TONEAREST) std::fesetround(FE_TONEAREST);
  if (const unsigned long now = control(); now & modes) set_control(now & ~modes);
}

StartingFloatingPointModes::StartingFloatingPointModes() : control_{control()}, rounding_{std::fegetround()} {
  reset_floating_point_modes();
}

StartingFloatingPointModes::~StartingFloatingPointModes() {
  if (rounding_ != FE_TONEAREST) std::fesetround(rounding_);
  if (control_ & modes) set_control((control() & ~modes) | (control_ & modes));
}

}  // namespace lockstep
