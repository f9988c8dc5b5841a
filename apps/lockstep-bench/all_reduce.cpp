#include "apps/lockstep-bench/all_reduce.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-bench/bandwidth.hpp"
#include "apps/lockstep-bench/exact_inputs.hpp"
#include "apps/lockstep-bench/memory.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "core/base/element_type.hpp"
#include "sync/reduce/paths.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {
namespace {

/// The tensors of the largest size; smaller sizes use their first elements.
struct Tensors {
  Tensor input;     ///< what this rank brings
  Tensor expected;  ///< the exact sum
  Tensor host;      ///< what MPI reduces, and where results are compared
  Tensor reduced;   ///< what the library reduces, where the store keeps gradients
  Tensor ordinary;  ///< the same in ordinary memory of the device, if that is measured

  static constexpr double copies = 4;
  static constexpr double copies_for_limit = 2;  ///< `ordinary`, and Bandwidth's

  Tensors(Memory& memory, DType dtype, std::int64_t count, int rank, int ranks, bool limit)
      : input{Tensor::zeros(dtype, {count})},
        expected{Tensor::zeros(dtype, {count})},
        host{Tensor::zeros(dtype, {count})},
        reduced{memory.allocate_for_gradients(dtype, count)},
        ordinary{limit ? memory.allocate(dtype, count) : Tensor{}} {
    fill_input(input.view(), rank);
    fill_sum(expected.view(), ranks);
  }
};

/// ConfigError for too little memory: the system may promise more than it has, and kill the ranks that use it.
void require_memory(const AllReduceOptions& options, int ranks_on_node) {
  constexpr double gib = 1 << 30;
  const std::int64_t max_bytes = options.max_bytes;
  const double copies = Tensors::copies + (options.limit ? Tensors::copies_for_limit : 0);
  const double needed = copies * static_cast<double>(max_bytes) * ranks_on_node;
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed > there)
    throw ConfigError{
        fmt::format("--max-bytes {}: {} on this host need{} {:.1f} GiB, and it has {:.1f} GiB; expected less",
                    max_bytes, ranks_on_node == 1 ? "1 rank" : fmt::format("{} ranks", ranks_on_node),
                    ranks_on_node == 1 ? "s" : "", needed / gib, there / gib)};
}

struct Times {
  std::vector<double> ours, mpi;            ///< one for each counted iteration, in microseconds
  std::vector<double> ordinary, copy, add;  ///< the same, where the limit is measured
  double error = 0;                         ///< over all iterations, including warm-up
};

/// The iterations of one size, on this rank.
Times measure(Reductions& reductions, MpiBaseline& mpi, Memory& memory, const Tensors& tensors, Bandwidth* bandwidth,
              std::int64_t count, const AllReduceOptions& options) {
  const auto begin_of = [&](const Tensor& tensor) { return tensor.view().slice(0, count); };
  const TensorView input = begin_of(tensors.input), expected = begin_of(tensors.expected),
                   host = begin_of(tensors.host);
  Times times;
  const auto reduce = [&](const TensorView& reduced) {
    memory.write(input, reduced);
    mpi.barrier();
    const double time = microseconds([&] {
      reductions.all_reduce(ReduceOp::sum, {&reduced, 1});
      memory.wait();
    });
    memory.read(reduced, host);
    times.error = std::max(times.error, largest_difference(host, expected));
    return time;
  };
  // As an all-reduce: from when all ranks begin to when all have ended.
  const auto together = [&](auto&& move) {
    mpi.barrier();
    return microseconds([&] { move(static_cast<std::int64_t>(input.bytes())); });
  };
  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i) {
    const double ours = reduce(begin_of(tensors.reduced));
    copy(input, host);
    mpi.barrier();
    const double bare = microseconds([&] { mpi.all_reduce(host); });
    if (i >= 0) {
      times.ours.push_back(ours);
      times.mpi.push_back(bare);
    }
    if (!bandwidth) continue;
    const double ordinary = reduce(begin_of(tensors.ordinary));
    const double copy = together([&](std::int64_t bytes) { bandwidth->copy(bytes); });
    bandwidth->write({input.data(), input.bytes()});
    const double add = together([&](std::int64_t bytes) { bandwidth->add(bytes); });
    if (i < 0) continue;
    times.ordinary.push_back(ordinary);
    times.copy.push_back(copy);
    times.add.push_back(add);
  }
  return times;
}

/// Medians over the iterations, in microseconds.
struct Limit {
  double ordinary, copy, add;
};

struct Result {
  std::int64_t bytes, count;
  double time, mpi_time;  ///< medians over the iterations, in microseconds
  double error;
  std::optional<Limit> limit;
};

/// COLL.
Result result_of(const Times& times, std::int64_t bytes, std::int64_t count, MpiBaseline& mpi) {
  const auto time_of = [&](const std::vector<double>& of_iterations) { return median(mpi.largest(of_iterations)); };
  Result result{bytes, count, time_of(times.ours), time_of(times.mpi), mpi.largest({times.error}).front(), {}};
  if (!times.add.empty()) result.limit = {time_of(times.ordinary), time_of(times.copy), time_of(times.add)};
  return result;
}

Row row_of(const Result& result, DType dtype, int ranks, int ranks_on_node) {
  // Bytes per microsecond are megabytes per second.
  const double algbw = static_cast<double>(result.bytes) / result.time / 1e3;
  // What the links of the machine carry. To sum S bytes on each of n ranks, every rank must send, and receive, at least
  // 2 S (n-1)/n: S (n-1)/n to have each of n slices added up somewhere, and as much to bring the sums back. This number
  // therefore stays the same over n where the links are the limit (nccl-tests, doc/PERFORMANCE.md).
  const double busbw = algbw * 2 * (ranks - 1) / ranks;
  // The columns of the limit need room.
  const bool wide = !result.limit;
  const std::size_t sizes = wide ? 10 : 9, times = wide ? 10 : 8, rates = wide ? 10 : 6;
  Row row{{"bytes", "B", result.bytes, Place::column, sizes},
          {"count", wide ? "elements" : "", result.count, Place::column, times},
          {"dtype", "", std::string{name_of(dtype)}, wide ? Place::column : Place::title},
          {"time", "us", result.time, Place::column, times},
          {"algbw", "GB/s", algbw, Place::column, rates},
          {"busbw", "GB/s", busbw, Place::column, rates},
          {"error", "", result.error, Place::column, wide ? rates : 5},
          {"mpi_time", "us", result.mpi_time, Place::column, times},
          {"ratio", "time/mpi", result.time / result.mpi_time}};
  if (!result.limit) return row;
  // Bandwidth's: read and written, by all ranks of the node.
  const double moved = 2.0 * static_cast<double>(result.bytes) * ranks_on_node / 1e3;
  row.insert(row.end(), {{"ordinary", "us", result.limit->ordinary, Place::column, times},
                         {"copy", "GB/s", moved / result.limit->copy, Place::column, rates},
                         {"add", "GB/s", moved / result.limit->add, Place::column, rates},
                         {"of_limit", "", result.limit->add / result.time, Place::column, times}});
  return row;
}

/// Which way a sum goes, and what the rank that sends most sends.
Row row_of_way(const detail::Way& way, std::int64_t bytes, DType dtype) {
  return {{"bytes", "B", bytes, Place::title},
          {"dtype", "", std::string{name_of(dtype)}, Place::title},
          {"path", "", std::string{name_of(way.path)}, Place::title},
          {"order", "", std::string{name_of(way.order)}, Place::title},
          {"cost", "", std::string{way.cost.formula}, Place::title},
          {"nodes", "", std::int64_t{way.layout.nodes}},
          {"messages", "", way.cost.messages},
          {"sent", "B", way.cost.bytes}};
}

}  // namespace

std::string bench_all_reduce(Runtime& runtime, const AllReduceOptions& options, const AddRow& add) {
  Strategy& strategy = runtime.strategy();
  const int ranks = strategy.num_replicas_in_sync();
  const auto element_bytes = static_cast<std::int64_t>(size_of(options.dtype));
  if (options.explain) {
    add(row_of_way(inside(strategy).reductions().way_of_sum(*options.explain, options.dtype), *options.explain,
                   options.dtype));
    return {};
  }
  Memory memory{runtime};
  MpiBaseline mpi;

  // Whatever may fail on one rank alone runs inside a run, so that it fails on all.
  std::optional<Tensors> tensors;
  std::optional<Bandwidth> bandwidth;
  strategy.run([&](ReplicaContext&) {
    require_memory(options, mpi.ranks_on_node());
    tensors.emplace(memory, options.dtype, options.max_bytes / element_bytes, runtime.rank(), ranks, options.limit);
  });
  if (options.limit) bandwidth.emplace(options.max_bytes);

  std::string wrong;
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
    const std::int64_t count = bytes / element_bytes;
    Times times;
    // One agreement covers all iterations of a size, so the sum is measured without it.
    strategy.run([&](ReplicaContext& context) {
      inside(context).declared_merge(fmt::format("all-reduce of {} bytes", bytes), [&](Reductions& reductions) {
        times = measure(reductions, mpi, memory, *tensors, bandwidth ? &*bandwidth : nullptr, count, options);
      });
    });
    const Result result = result_of(times, bytes, count, mpi);
    add(row_of(result, options.dtype, ranks, mpi.ranks_on_node()));
    if (result.error != 0 && wrong.empty())
      wrong = fmt::format("all-reduce: the sum of {} bytes is off by {}; expected the exact sum", bytes, result.error);
  }
  return wrong;
}

}  // namespace lockstep::bench
