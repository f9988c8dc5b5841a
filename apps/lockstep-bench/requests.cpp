#include "apps/lockstep-bench/requests.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <lockstep/sync/group/group.hpp>

#include "apps/lockstep-bench/exact_inputs.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/timing.hpp"

namespace lockstep::bench {
namespace {

/// How late the last rank comes.
constexpr std::chrono::milliseconds late{250};

/// One for each counted iteration, on this rank, in microseconds.
struct RequestTimes {
  std::vector<double> blocking, submit, request;
  double error = 0;  ///< over all iterations
};

RequestTimes measure(Group& group, MpiBaseline& mpi, const Tensor& input, const Tensor& expected,
                     const RequestOptions& options) {
  const Tensor values = Tensor::copy_of(input.view());
  RequestTimes times;
  const auto sum_exactly = [&](auto&& sum) {
    copy(input.view(), values.view());
    mpi.barrier();
    const double time = microseconds(sum);
    times.error = std::max(times.error, largest_difference(values.view(), expected.view()));
    return time;
  };
  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i) {
    double submit = 0;
    const double blocking = sum_exactly([&] { group.all_reduce(values.view()); });
    const double request = sum_exactly([&] {
      std::optional<Group::Request> sum;
      submit = microseconds([&] { sum = group.submit_all_reduce(values.view()); });
      sum->wait();
    });
    if (i < 0) continue;
    times.blocking.push_back(blocking);
    times.submit.push_back(submit);
    times.request.push_back(request);
  }
  return times;
}

/// What this process takes of a core while a request waits for the last rank, in percent; 0 on the last rank.
double percent_of_a_core(Group& group, MpiBaseline& mpi, const Tensor& input) {
  const Tensor values = Tensor::copy_of(input.view());
  const bool is_last = mpi.ranks() > 1 && mpi.rank() == mpi.ranks() - 1;
  mpi.barrier();
  if (is_last) std::this_thread::sleep_for(late);
  Group::Request sum = group.submit_all_reduce(values.view());
  double percent = 0;
  if (!is_last) {
    double passed = 0;
    const double used = processor_microseconds(
        CLOCK_PROCESS_CPUTIME_ID, [&] { passed = microseconds([&] { std::this_thread::sleep_for(late); }); });
    percent = 100 * used / passed;
  }
  sum.wait();
  return percent;
}

}  // namespace

std::string bench_requests(Runtime& runtime, const RequestOptions& options, const AddRow& add) {
  Group group = runtime.group();
  MpiBaseline mpi;
  std::string wrong;
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
    const Tensor input = Tensor::zeros(DType::f32, {bytes / 4}), expected = Tensor::zeros(DType::f32, {bytes / 4});
    fill_input(input.view(), mpi.rank());
    fill_sum(expected.view(), mpi.ranks());
    const RequestTimes times = measure(group, mpi, input, expected, options);
    const double blocking = median(mpi.largest(times.blocking)), request = median(mpi.largest(times.request));
    add({{"bytes", "B", bytes},
         {"blocking", "us", blocking},
         {"submit", "us", median(mpi.largest(times.submit))},
         {"request", "us", request},
         {"ratio", "req/block", request / blocking},
         {"cpu", "% of a core", mpi.largest({percent_of_a_core(group, mpi, input)}).front()}});
    if (mpi.largest({times.error}).front() != 0 && wrong.empty())
      wrong = fmt::format("requests: a sum of {} bytes is wrong; expected the exact sum", bytes);
  }
  return wrong;
}

}  // namespace lockstep::bench
