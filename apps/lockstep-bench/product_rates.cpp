#include "apps/lockstep-bench/product_rates.hpp"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/lockstep-bench/arithmetic.hpp"
#include "apps/lockstep-bench/blas_libraries.hpp"
#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/processor_peak.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "core/order/shares.hpp"

namespace lockstep::bench {
namespace {

using Transpose = ops::Kernels::Transpose;

constexpr std::size_t rate_digits = 9;

/// What is measured: operands, and the time of a call on each of several libraries.
class Operands {
 public:
  explicit Operands(const StepProduct& product) : product_{product} {
    const auto matrix = [](std::int64_t rows, std::int64_t columns, Transpose transpose) {
      const Shape shape = transpose == Transpose::yes ? Shape{columns, rows} : Shape{rows, columns};
      std::vector<float> values(static_cast<std::size_t>(rows * columns));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 5) - 2;
      return Tensor::from(values, shape);
    };
    for (std::int64_t term = 0; term < product.terms; ++term)
      factors_.push_back(
          {matrix(product.m, product.k, product.transpose_a), matrix(product.k, product.n, product.transpose_b)});
    for (const Factors& each : factors_) views_.push_back({each.a.view(), each.b.view()});
    c_ = Tensor::zeros(DType::f32, {product.m, product.n});
  }

  /// As a training does it.
  void multiply(const ops::Kernels& kernels) const {
    if (product_.terms > 1) return kernels.sum_of_products(views_, c_.view());
    kernels.matmul(views_[0].a, product_.transpose_a, views_[0].b, product_.transpose_b, c_.view());
  }

  /// The last product. The operands are small integers, so it needs no rounding in any order.
  std::vector<float> result() const { return c_.to_vector<float>(); }

  /// As a program that calls the library would.
  void multiply(const BlasLibrary& library) const {
    float keep = 0;
    for (const ops::Kernels::Factors& each : views_)
      library.multiply(product_.m, product_.n, product_.k, data(each.a), product_.transpose_a, data(each.b),
                       product_.transpose_b, std::exchange(keep, 1.0F), data(c_.view()));
  }

 private:
  struct Factors {
    Tensor a, b;
  };

  static float* data(const TensorView& view) { return reinterpret_cast<float*>(view.data()); }

  StepProduct product_;
  std::vector<Factors> factors_;
  std::vector<ops::Kernels::Factors> views_;
  Tensor c_;
};

struct ProductTimes {
  /// In a step, of each that multiplies, in microseconds: medians of the slowest rank.
  std::vector<double> medians;
  /// Whether all have the same result on all ranks.
  bool same = true;
};

/// COLL.
ProductTimes times_of(const StepProduct& product, const ops::Kernels& kernels,
                      const std::vector<BlasLibrary>& libraries, const ArithmeticOptions& options, MpiBaseline& mpi) {
  const Operands operands{product};
  std::vector<std::function<void()>> who{[&] { operands.multiply(kernels); }};
  for (const BlasLibrary& library : libraries) who.emplace_back([&] { operands.multiply(library); });
  // A small product many times, so that the clock's resolution does not matter.
  constexpr double flops_at_once = 2e7;
  const auto repeats = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(flops_at_once * static_cast<double>(product.count) / product.flops()));
  std::vector<std::vector<double>> times(who.size());
  for (std::int64_t i = -options.warm_up; i < options.iterations; ++i) {
    for (std::size_t each = 0; each < who.size(); ++each) {
      mpi.barrier();
      const double time = processor_microseconds(CLOCK_THREAD_CPUTIME_ID, [&] {
        for (std::int64_t repeat = 0; repeat < repeats; ++repeat) who[each]();
      });
      if (i >= 0) times[each].push_back(time / static_cast<double>(repeats) * static_cast<double>(product.count));
    }
  }
  ProductTimes result;
  for (const std::vector<double>& each : times) result.medians.push_back(median(mpi.largest(each)));
  who.front()();
  const std::vector<float> expected = operands.result();
  const bool differs = std::ranges::any_of(libraries, [&](const BlasLibrary& library) {
    operands.multiply(library);
    return operands.result() != expected;
  });
  result.same = mpi.largest({differs ? 1.0 : 0.0}).front() == 0;
  return result;
}

/// COLL. Those that all ranks have, whose hosts may differ.
std::vector<BlasLibrary> libraries_of_all(MpiBaseline& mpi) {
  std::vector<BlasLibrary> libraries = blas_libraries();
  std::vector<double> lacks;
  for (const std::string_view name : blas_names)
    lacks.push_back(std::ranges::find(libraries, name, &BlasLibrary::name) == libraries.end());
  lacks = mpi.largest(std::move(lacks));
  std::erase_if(libraries, [&](const BlasLibrary& each) {
    return lacks[static_cast<std::size_t>(std::ranges::find(blas_names, each.name()) - blas_names)] != 0;
  });
  return libraries;
}

/// The subject of all rows.
struct Head {
  std::string model;
  std::int64_t batch;
  std::int64_t shards;
  std::string kernels;
  std::string instructions;
  double peak;
};

Row row_of(const Head& head, const std::string& name, const std::string& shape, std::int64_t count, double flops,
           const std::vector<double>& times, const std::vector<BlasLibrary>& libraries) {
  // Operations per microsecond are 10^6 per second.
  const auto rate = [&](double time) { return flops / time * 1e-3; };
  Row row{{"model", "", head.model, Place::title},
          {"batch", "", head.batch, Place::title},
          {"shards", "", head.shards, Place::title},
          {"kernels", "", head.kernels, Place::title},
          {"instructions", "", head.instructions, Place::title},
          {"peak", "GFLOP/s", head.peak * 1e-9, Place::title},
          {"product", "", name, Place::column, 16},
          {"shape", "m x n x k", shape, Place::column, 16},
          {"count", "", count, Place::column, 5},
          {"lockstep", "GFLOP/s", rate(times[0]), Place::column, rate_digits}};
  for (std::size_t i = 0; i < libraries.size(); ++i)
    row.push_back({libraries[i].name().data(), "GFLOP/s", rate(times[i + 1]), Place::column, rate_digits});
  row.push_back({"of_peak", "", head.peak > 0 ? rate(times[0]) * 1e9 / head.peak : 0.0, Place::column, rate_digits});
  return row;
}

std::string shape_text(const StepProduct& product) {
  return fmt::format("{}x{}x{}{}", product.m, product.n, product.k,
                     product.terms > 1 ? fmt::format("*{}", product.terms) : "");
}

}  // namespace

std::string bench_arithmetic(Runtime& runtime, const ArithmeticOptions& options, const AddRow& add) {
  const std::int64_t global_batch = global_batch_of(options.step);
  const int shards = shards_of(options.step, runtime);
  const std::int64_t samples_of_shard = (global_batch + shards - 1) / shards;
  MpiBaseline mpi;
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::automatic, {}, runtime.strategy().stream());
  const std::vector<BlasLibrary> libraries = libraries_of_all(mpi);
  const VectorWidth width = vector_width();
  mpi.barrier();
  const Head head{.model = std::string{name_of(options.step.model)},
                  .batch = global_batch,
                  .shards = shards,
                  .kernels = std::string{kernels->name()},
                  .instructions = std::string{name_of(width)},
                  .peak = processor_peak(width)};
  std::string wrong;
  double flops = 0;
  std::vector<double> whole(1 + libraries.size());
  for (const StepProduct& product :
       products_of(options.step.model, options.step.hidden, static_cast<int>(Shares{shards, runtime.size()}.largest()),
                   samples_of_shard)) {
    const auto [times, same] = times_of(product, *kernels, libraries, options, mpi);
    add(row_of(head, product.name, shape_text(product), product.count, product.flops(), times, libraries));
    flops += product.flops();
    for (std::size_t i = 0; i < whole.size(); ++i) whole[i] += times[i];
    if (!same && wrong.empty())
      wrong = fmt::format("arithmetic: libraries differ in the product {}; expected the same sums of integers",
                          product.name);
  }
  add(row_of(head, "all", "-", 1, flops, whole, libraries));
  return wrong;
}

}  // namespace lockstep::bench
