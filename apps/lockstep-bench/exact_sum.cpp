#include "apps/lockstep-bench/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <span>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/reduce/exact_sum.hpp>

#include "apps/lockstep-bench/bandwidth.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "core/base/element_type.hpp"

namespace lockstep::bench {
namespace {

/// So short are sums of one number that an iteration makes several.
constexpr int calls = 100;

enum class Numbers : std::uint8_t { like_size, half_zeros, any_exponent };

std::string name_of(Numbers numbers) {
  switch (numbers) {
    case Numbers::like_size: return "like-size";
    case Numbers::half_zeros: return "half-zeros";
    case Numbers::any_exponent: return "any-exponent";
  }
  return "?";
}

/// Number `index` of a rank: pseudo-random (SplitMix64, Steele, Lea and Flood, 2014), and finite.
template <class T>
T number_of(Numbers numbers, int rank, std::size_t index) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::uint64_t mixed = (index + (static_cast<std::uint64_t>(rank) << 40) + 1) * 0x9E3779B97F4A7C15;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  mixed ^= mixed >> 31;
  if (numbers == Numbers::any_exponent) {
    const T number = std::bit_cast<T>(static_cast<Bits>(mixed >> (64 - 8 * sizeof(T))));
    return std::isfinite(number) ? number : 1;
  }
  if (numbers == Numbers::half_zeros && (mixed & 1) != 0) return 0;
  return static_cast<T>(static_cast<double>(static_cast<std::int64_t>(mixed)) * 0x1p-63);
}

template <class T>
std::vector<T> numbers_of(Numbers numbers, int rank, std::int64_t bytes) {
  std::vector<T> all(static_cast<std::size_t>(bytes) / sizeof(T));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = number_of<T>(numbers, rank, i);
  return all;
}

/// Element by element.
template <class T>
std::vector<T> exact_sums_of(Numbers numbers, int ranks, std::size_t count) {
  std::vector<T> sums;
  for (std::size_t i = 0; i < count; ++i) {
    ExactSum<T> sum;
    for (int rank = 0; rank < ranks; ++rank) sum.add(number_of<T>(numbers, rank, i));
    sums.push_back(sum.value());
  }
  return sums;
}

class Bench {
 public:
  Bench(Runtime& runtime, const ExactSumOptions& options, const AddRow& add)
      : group_{runtime.group()}, options_{options}, add_{add} {}

  void of_one_number() {
    const double mine = number_of<double>(Numbers::like_size, mpi_.rank(), 0);
    const double expected = exact_sums_of<double>(Numbers::like_size, mpi_.ranks(), 1).front();
    double sum = 0;
    const auto by = [&](ReduceOp op) {
      return time_of(
          [&] {
            sum = mine;
            group_.all_reduce(op, std::span{&sum, 1});
          },
          calls);
    };
    const auto by_object = [&] {
      return time_of(
          [&] {
            ExactSum<double> object;
            object.add(mine);
            group_.all_reduce(object);
            sum = object.value();
          },
          calls);
    };
    const auto plain = [&] { return by(ReduceOp::sum); };
    const auto is_right = [&] { return sum == expected; };
    const Measured one{"one", Numbers::like_size, DType::f64, sizeof mine},
        object{"object", one.numbers, DType::f64, sizeof mine};
    measure(
        one, plain, [&] { return by(ReduceOp::exact_sum); }, is_right);
    measure(object, plain, by_object, is_right);
  }

  template <class T>
  void of_array(Numbers numbers) {
    const std::vector<T> mine = numbers_of<T>(numbers, mpi_.rank(), options_.bytes);
    const std::vector<T> expected = exact_sums_of<T>(numbers, mpi_.ranks(), mine.size());
    std::vector<T> sums;
    const auto by = [&](ReduceOp op) {
      sums = mine;
      return time_of([&] { group_.all_reduce(op, std::span{sums}); });
    };
    measure(
        {"array", numbers, detail::dtype_of<T>, options_.bytes}, [&] { return by(ReduceOp::sum); },
        [&] { return by(ReduceOp::exact_sum); }, [&] { return sums == expected; });
  }

  template <class T>
  void of_this_rank(Numbers numbers) {
    const std::vector<T> mine = numbers_of<T>(numbers, mpi_.rank(), options_.local_bytes);
    ExactSum<T> expected, sum;
    for (const T number : mine) expected.add(number);
    // There is nobody to wait for.
    const auto alone = [&](auto&& work) {
      mpi_.barrier();
      return processor_microseconds(CLOCK_THREAD_CPUTIME_ID, work);
    };
    const auto read = [&] { return alone([&] { read_ += static_cast<double>(read_all(std::span{mine})); }); };
    const auto add = [&] {
      sum = {};
      return alone([&] { sum.add(std::span{mine}); });
    };
    measure({"local", numbers, detail::dtype_of<T>, options_.local_bytes}, read, add,
            [&] { return sum.words() == expected.words(); });
  }

  /// COLL. What was wrong; empty if nothing was.
  std::string wrong() {
    // What was read is used, or a compiler might read nothing.
    const bool is_wrong = mpi_.largest({is_wrong_ ? 1.0 : 0.0, read_}).front() != 0;
    return is_wrong ? "exact-sum: a sum is not the exact one, rounded once" : "";
  }

 private:
  /// What a row is about.
  struct Measured {
    const char* sum;
    Numbers numbers;
    DType dtype;
    std::int64_t bytes;
  };

  /// COLL. In microseconds, for each of several calls.
  double time_of(auto&& sum, int several = 1) {
    mpi_.barrier();
    const double time = microseconds([&] {
      for (int call = 0; call < several; ++call) sum();
    });
    return time / several;
  }

  /// COLL. `plain` and `exact` return what a sum takes. `is_right` is about an exact one.
  void measure(const Measured& what, auto&& plain, auto&& exact, auto&& is_right) {
    std::vector<double> plain_times, exact_times;
    for (std::int64_t i = -options_.warm_up; i < options_.iterations; ++i) {
      const double of_plain = plain(), of_exact = exact();
      is_wrong_ |= !is_right();
      if (i < 0) continue;
      plain_times.push_back(of_plain);
      exact_times.push_back(of_exact);
    }
    const double plain_time = median(mpi_.largest(plain_times)), exact_time = median(mpi_.largest(exact_times));
    add_({{"sum", "", std::string{what.sum}, Place::column, 7},
          {"numbers", "", name_of(what.numbers), Place::column, 12},
          {"dtype", "", std::string{lockstep::name_of(what.dtype)}, Place::column, 5},
          {"bytes", "B", what.bytes},
          {"plain", "us", plain_time},
          {"exact", "us", exact_time},
          {"ratio", "exact/plain", exact_time / plain_time},
          {"rate", "plain/exact", plain_time / exact_time}});
  }

  Group group_;
  MpiBaseline mpi_;
  const ExactSumOptions& options_;
  const AddRow& add_;
  double read_ = 0;
  bool is_wrong_ = false;
};

}  // namespace

std::string bench_exact_sum(Runtime& runtime, const ExactSumOptions& options, const AddRow& add) {
  Bench bench{runtime, options, add};
  bench.of_one_number();
  for (const Numbers numbers : {Numbers::like_size, Numbers::half_zeros, Numbers::any_exponent}) {
    bench.of_array<double>(numbers);
    bench.of_array<float>(numbers);
  }
  for (const Numbers numbers : {Numbers::like_size, Numbers::half_zeros, Numbers::any_exponent}) {
    bench.of_this_rank<double>(numbers);
    bench.of_this_rank<float>(numbers);
  }
  return bench.wrong();
}

}  // namespace lockstep::bench
