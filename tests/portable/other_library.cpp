// A training with reference kernels has the same bits whatever the C library computes: here this program's own
// functions stand before the library's, and are off by one unit in the last place if asked.
#include <atomic>
#include <cmath>
#include <limits>
#include <string>

#include <catch2/catch.hpp>

#include "apps/simulated_training.hpp"
#include "support/next_function.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::atomic<bool> is_other{false};

template <class T, class... X>
T next_to(const char* name, X... x) {
  const T exact = next<T(X...)>(name)(x...);
  return is_other ? std::nextafter(exact, std::numeric_limits<T>::infinity()) : exact;
}

}  // namespace

// What a training could call: those of float and of double.
#define LOCKSTEP_OTHER(name)                   \
  extern "C" double name(double x) noexcept {  \
    return next_to<double>(#name, x);          \
  }                                            \
  extern "C" float name##f(float x) noexcept { \
    return next_to<float>(#name "f", x);       \
  }
LOCKSTEP_OTHER(exp)
LOCKSTEP_OTHER(exp2)
LOCKSTEP_OTHER(expm1)
LOCKSTEP_OTHER(log)
LOCKSTEP_OTHER(log2)
LOCKSTEP_OTHER(log1p)
LOCKSTEP_OTHER(sin)
LOCKSTEP_OTHER(cos)
LOCKSTEP_OTHER(tanh)
LOCKSTEP_OTHER(erf)
#undef LOCKSTEP_OTHER
extern "C" double pow(double x, double y) noexcept {
  return next_to<double>("pow", x, y);
}
extern "C" float powf(float x, float y) noexcept {
  return next_to<float>("powf", x, y);
}

namespace {

std::string digest_on(bool other, const Arguments& arguments) {
  const QuietLog quiet;
  is_other = other;
  const std::string digest = train_simulated(1, arguments).digest();
  is_other = false;
  return digest;
}

/// Each of the three models with an optimizer and a schedule that compute powers and cosines.
Arguments mlp() {
  return {"--data", small_data(),      "--hidden", "20",         "--global-batch", "32",      "--optimizer",
          "adamw",  "--learning-rate", "0.001",    "--schedule", "cosine",         "--steps", "5"};
}
Arguments convnet() {
  return {"--data",  small_data(), "--model",        "convnet", "--batch-norm", "--global-batch", "16",
          "--steps", "2",          "--eval-samples", "10"};
}
Arguments gpt(const TemporaryDirectory& folder) {
  return small_gpt(folder) +
         Arguments{"--optimizer", "adamw", "--learning-rate", "0.001", "--schedule", "cosine", "--steps", "4"};
}

/// Checks that the result is `expected` with any C library. It is the same on every machine: if it changes, then so do
/// the results of all who compute with reference kernels, and their fingerprint must change with them.
void check_portable(const Arguments& arguments, const std::string& expected) {
  const Arguments by_reference = arguments + Arguments{"--kernels", "reference"};
  CHECK(digest_on(false, by_reference) == expected);
  CHECK(digest_on(true, by_reference) == expected);
}

}  // namespace

TEST_CASE("an mlp by reference kernels has the same bits with any C library") {
  check_portable(mlp(), "9e263e2e2cda82ba");
  check_portable(mlp() + Arguments{"--dtype", "f64"}, "20c67dbf9f437431");
}

TEST_CASE("a convnet by reference kernels has the same bits with any C library") {
  check_portable(convnet(), "71016e6c36f76e95");
}

TEST_CASE("a gpt by reference kernels has the same bits with any C library") {
  const TemporaryDirectory folder;
  check_portable(gpt(folder), "fac1cd4a2c33f23b");
  check_portable(gpt(folder) + Arguments{"--dtype", "f64"}, "6778df50542093e8");
  check_portable(gpt(folder) + Arguments{"--precision", "bf16"}, "796610b058f3fd21");
}

TEST_CASE("other kernels have other bits with another C library") {
  // So this program's functions are those that are called. In f64 each difference shows.
  const TemporaryDirectory folder;
  for (const Arguments& arguments : {mlp(), gpt(folder)}) {
    const Arguments in_f64 = arguments + Arguments{"--dtype", "f64", "--kernels", "onednn"};
    CHECK(digest_on(false, in_f64) != digest_on(true, in_f64));
  }
}
