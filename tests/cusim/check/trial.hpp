// What trials of lockstep's own kernels are made of: device memory, comparisons that end a process, and random sizes
// and values.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <catch2/catch.hpp>
#include <cuda_runtime_api.h>

#include "child.hpp"

namespace cusim::test {

/// Ends the process of a trial.
inline void require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(4);
}
inline void require(cudaError_t result) {
  require(result == cudaSuccess, cudaGetErrorString(result));
}

/// Device memory of a kernel. Without content it has never been written.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_{count} {
    void* made = nullptr;
    require(cudaMalloc(&made, std::max<std::size_t>(count, 1) * sizeof(T)));
    data_ = static_cast<T*>(made);
  }
  explicit OnDevice(const std::vector<T>& content) : OnDevice{content.size()} {
    require(cudaMemcpy(data_, content.data(), content.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { require(cudaFree(data_)); }

  T* data() { return data_; }
  std::vector<T> content() const {
    std::vector<T> copy(count_);
    require(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

template <class T>
void require_same(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  require(std::memcmp(got.data(), expected.data(), expected.size() * sizeof(T)) == 0, what + ": wrong values");
}

/// Where the order of a sum, or a function's last bit, is the device's own.
template <class T>
void require_close(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what,
                   T some = 64 * std::numeric_limits<T>::epsilon()) {
  for (std::size_t i = 0; i < expected.size(); ++i)
    require(std::abs(got[i] - expected[i]) <= some * (1 + std::abs(expected[i])), what + ": wrong values");
}

/// Where sums of many large terms cancel.
template <class T>
void require_loosely(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  require_close(got, expected, what, std::is_same_v<T, float> ? T(2e-3) : T(1e-10));
}

/// Sizes and values of one seed.
struct Trial {
  std::mt19937_64 random;

  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  }

  /// Around a multiple of a warp, a block or a grid of two blocks, or small.
  std::int64_t size() {
    if (below(2)) return 1 + below(130);
    constexpr std::array<std::int64_t, 6> steps{32, 64, 256, 512, 1024, 2048};
    return steps[static_cast<std::size_t>(below(6))] + below(3) - 1;
  }

  template <class T>
  std::vector<T> numbers(std::int64_t count) {
    std::vector<T> made(static_cast<std::size_t>(count));
    for (T& number : made) {
      const double value = static_cast<double>(below(2001) - 1000) / 70;  // rounded, so that the order of sums shows
      if constexpr (std::is_integral_v<T>)
        number = static_cast<T>(below(1000));
      else
        number = static_cast<T>(static_cast<float>(value));
    }
    return made;
  }
};

/// Tries with many seeds, each in a process of its own, and with grids that are too small to need no stride with half
/// of them. Nothing may be found.
inline void try_with_seeds(const std::function<void(Trial&)>& attempt) {
  for (unsigned seed = 1; seed <= seeds(16); ++seed) {
    INFO("seed " << seed);
    const Outcome outcome = outcome_of(
        [&] {
          Trial trial{.random = std::mt19937_64{seed}};
          attempt(trial);
        },
        {{"CUSIM_SEED", std::to_string(seed)}, {"CUSIM_MOST_BLOCKS", seed % 2 ? "2" : "0"}});
    std::fputs(outcome.said.c_str(), stderr);  // not as Catch2 would break it: tests/cusim/mutants looks for its lines
    REQUIRE(outcome.code == 0);
  }
}

}  // namespace cusim::test
