// Times of iterations. An iteration of all ranks takes as long as on the slowest rank. A benchmark reports the median
// over its iterations, because the machine's other work affects that least.
#pragma once

#include <algorithm>
#include <chrono>
#include <ctime>
#include <vector>

namespace lockstep::bench {

/// How long `body` takes on this rank.
template <class Body>
double microseconds(Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::micro>{std::chrono::steady_clock::now() - begin}.count();
}

/// How much of a core the process or the thread of `clock` takes for `body`, so other work on the machine counts less.
template <class Body>
double processor_microseconds(clockid_t clock, Body&& body) {
  const auto now = [clock] {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
  };
  const double begin = now();
  body();
  return now() - begin;
}

/// The middle value, or the mean of the middle two of an even number. There must be at least one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace lockstep::bench
