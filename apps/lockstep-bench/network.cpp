#include "apps/lockstep-bench/network.hpp"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-bench/exact_inputs.hpp"
#include "apps/lockstep-bench/memory.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/tcp_streams.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "sync/reduce/reductions.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep::bench {
namespace {

constexpr std::int64_t small_bytes = 16;  // those of an agreement
constexpr int round_trips = 10;           // an iteration's

/// TCP streams or MPI between the first rank and the last one. The others wait.
template <class Transport>
class EndsOf {
 public:
  EndsOf(Transport& transport, const MpiBaseline& mpi)
      : transport_{transport}, rank_{mpi.rank()}, last_{mpi.ranks() - 1} {}

  /// Microseconds from one to the other.
  double latency() const {
    return microseconds([&] {
             for (int i = 0; i < round_trips; ++i) there_and_back(small_bytes);
           }) /
           round_trips / 2;
  }

  /// Returns when the last rank has all, and the first one knows.
  void there_and_back(std::int64_t bytes) const {
    if (rank_ == 0) {
      transport_.send(last_, bytes);
      transport_.receive(last_, small_bytes);
    } else if (rank_ == last_) {
      transport_.receive(0, bytes);
      transport_.send(0, small_bytes);
    }
  }

 private:
  Transport& transport_;
  int rank_, last_;
};

struct LinkInputs {
  Tensor input, expected, reduced;

  LinkInputs(Memory& memory, std::int64_t count, int rank, int ranks)
      : input{Tensor::zeros(DType::f32, {count})},
        expected{Tensor::zeros(DType::f32, {count})},
        reduced{memory.allocate_for_gradients(DType::f32, count)} {
    fill_input(input.view(), rank);
    fill_sum(expected.view(), ranks);
  }
};

/// Of a size, one for each counted iteration, in microseconds.
struct LinkTimes {
  std::vector<double> latency, mpi_latency, one_way, mpi_one_way, both_ways, mpi_both_ways, sum;
  double error = 0;
};

LinkTimes measure_links(Reductions& reductions, MpiBaseline& mpi, TcpStreams& tcp, const LinkInputs& inputs,
                        std::int64_t bytes, const NetworkOptions& options) {
  LinkTimes times;
  const EndsOf by_tcp{tcp, mpi};
  const EndsOf by_mpi{mpi, mpi};
  const TensorView input = inputs.input.view().slice(0, bytes / 4), reduced = inputs.reduced.view().slice(0, bytes / 4),
                   expected = inputs.expected.view().slice(0, bytes / 4);
  const std::int64_t slice = std::max<std::int64_t>(bytes / mpi.ranks(), 1);
  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i) {
    const auto note = [&](std::vector<double>& of, double time) {
      if (i >= 0) of.push_back(time);
    };
    const auto timed = [&](std::vector<double>& of, auto&& body) {
      mpi.barrier();
      note(of, microseconds(body));
    };
    mpi.barrier();
    note(times.latency, by_tcp.latency());
    mpi.barrier();
    note(times.mpi_latency, by_mpi.latency());
    timed(times.one_way, [&] { by_tcp.there_and_back(bytes); });
    timed(times.mpi_one_way, [&] { by_mpi.there_and_back(bytes); });
    copy(input, reduced);
    // As a sum: no rank sends what it has received before it has all.
    timed(times.both_ways, [&] {
      tcp.exchange(slice);
      tcp.exchange(slice);
    });
    timed(times.sum, [&] { reductions.all_reduce(ReduceOp::sum, {&reduced, 1}); });
    times.error = std::max(times.error, largest_difference(reduced, expected));
    timed(times.mpi_both_ways, [&] {
      mpi.exchange(slice);
      mpi.exchange(slice);
    });
  }
  return times;
}

/// COLL.
Row row_of_links(const LinkTimes& times, std::int64_t bytes, MpiBaseline& mpi, const std::string& congestion_control) {
  const auto time_of = [&](const std::vector<double>& of) { return median(mpi.largest(of)); };
  // Bytes per microsecond are megabytes per second.
  const auto one_way = [&](const std::vector<double>& of) { return static_cast<double>(bytes) / time_of(of); };
  const auto both_ways = [&](const std::vector<double>& of) {
    return 2.0 * static_cast<double>(bytes) * (mpi.ranks() - 1) / mpi.ranks() / time_of(of);
  };
  const double streams = both_ways(times.both_ways), sum = both_ways(times.sum);
  return {{"tcp", "", congestion_control, Place::title},
          {"bytes", "B", bytes},
          {"latency", "us", time_of(times.latency), Place::column, 8},
          {"mpi_latency", "us", time_of(times.mpi_latency), Place::column, 8},
          {"one_way", "MB/s", one_way(times.one_way), Place::column, 8},
          {"mpi_one_way", "MB/s", one_way(times.mpi_one_way), Place::column, 8},
          {"both_ways", "MB/s", streams, Place::column, 8},
          {"mpi_both_ways", "MB/s", both_ways(times.mpi_both_ways), Place::column, 8},
          {"sum", "MB/s", sum, Place::column, 8},
          {"ratio", "sum/tcp", sum / streams, Place::column, 8}};
}

}  // namespace

SumTimes measure_sums(Runtime& runtime, std::int64_t bytes, std::int64_t warm_up, std::int64_t iterations) {
  Memory memory{runtime};
  MpiBaseline mpi;
  std::optional<LinkInputs> inputs;
  std::vector<double> latencies, sums;
  double error = 0;
  runtime.strategy().run([&](ReplicaContext& context) {
    inputs.emplace(memory, bytes / 4, mpi.rank(), mpi.ranks());
    inside(context).declared_merge(fmt::format("sums of {} bytes", bytes), [&](Reductions& reductions) {
      const EndsOf by_mpi{mpi, mpi};
      const TensorView sum = inputs->reduced.view();
      for (std::int64_t i = -warm_up; i < iterations; ++i) {
        mpi.barrier();
        const double latency = by_mpi.latency();
        if (i >= 0) latencies.push_back(latency);
      }
      for (std::int64_t i = -warm_up; i < iterations; ++i) {
        copy(inputs->input.view(), sum);
        mpi.barrier();
        const double time = microseconds([&] { reductions.all_reduce(ReduceOp::sum, {&sum, 1}); });
        error = std::max(error, largest_difference(sum, inputs->expected.view()));
        if (i >= 0) sums.push_back(time);
      }
    });
  });
  if (mpi.largest({error}).front() != 0)
    throw Error{fmt::format("a sum of {} bytes is wrong; expected the exact sum", bytes)};
  return {.sum = median(mpi.largest(sums)), .latency = median(mpi.largest(latencies))};
}

std::string bench_network(Runtime& runtime, const NetworkOptions& options, const AddRow& add) {
  Strategy& strategy = runtime.strategy();
  Memory memory{runtime};
  MpiBaseline mpi;
  std::optional<TcpStreams> tcp;
  std::optional<LinkInputs> inputs;
  // Whatever may fail on one rank alone runs inside a run, so that it fails on all.
  strategy.run([&](ReplicaContext&) {
    if (mpi.ranks() == 1) throw ConfigError{"network: there is one rank; expected two or more, on several nodes"};
    inputs.emplace(memory, options.max_bytes / 4, mpi.rank(), mpi.ranks());
    tcp.emplace(mpi, options.network);
  });
  std::string wrong;
  for (std::int64_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= 2) {
    LinkTimes times;
    strategy.run([&](ReplicaContext& context) {
      inside(context).declared_merge(fmt::format("the network with {} bytes", bytes), [&](Reductions& reductions) {
        times = measure_links(reductions, mpi, *tcp, *inputs, bytes, options);
      });
    });
    add(row_of_links(times, bytes, mpi, tcp->congestion_control()));
    if (mpi.largest({times.error}).front() != 0 && wrong.empty())
      wrong = fmt::format("network: a sum of {} bytes is wrong; expected the exact sum", bytes);
  }
  return wrong;
}

}  // namespace lockstep::bench
