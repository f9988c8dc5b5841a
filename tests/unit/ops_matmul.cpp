// Products, against sums in double, and the bits that they promise.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <thread>

#include <catch2/catch.hpp>

#include <lockstep/models/ops/kernels.hpp>

#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "ops_support.hpp"

using namespace lockstep;
using namespace lockstep::ops;

namespace {

struct Product {
  std::int64_t m, n, k;
  Kernels::Transpose transpose_a = Kernels::Transpose::no;
  Kernels::Transpose transpose_b = Kernels::Transpose::no;

  Shape a() const { return transpose_a == Kernels::Transpose::yes ? Shape{k, m} : Shape{m, k}; }
  Shape b() const { return transpose_b == Kernels::Transpose::yes ? Shape{n, k} : Shape{k, n}; }
};

/// The largest difference from three naive loops in double.
double error_of(const Kernels& kernels, DType dtype, const Product& p) {
  const Tensor a = noise(dtype, p.a(), 1);
  const Tensor b = noise(dtype, p.b(), 2);
  const Tensor c = filled(dtype, {p.m, p.n}, not_a_number);  // overwritten: what was there must not show
  kernels.matmul(a.view(), p.transpose_a, b.view(), p.transpose_b, c.view());
  const auto x = in_double(a);
  const auto y = in_double(b);
  const auto z = in_double(c);
  double error = 0;
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l)
        sum += x[static_cast<std::size_t>(p.transpose_a == Kernels::Transpose::yes ? l * p.m + i : i * p.k + l)] *
               y[static_cast<std::size_t>(p.transpose_b == Kernels::Transpose::yes ? j * p.k + l : l * p.n + j)];
      const double difference = std::abs(z[static_cast<std::size_t>(i * p.n + j)] - sum);
      if (!(difference <= error)) error = difference;  // a NaN stays
    }
  return error;
}

/// Adds up tensors [first, last) in the first of them: the left part, of as many as the largest power of two below
/// their number, and the right one.
void add_up_in_tree(const Kernels& kernels, const std::vector<Tensor>& parts, std::size_t first, std::size_t last) {
  if (last - first == 1) return;
  std::size_t middle = first + 1;
  while (2 * (middle - first) < last - first) middle = first + 2 * (middle - first);
  add_up_in_tree(kernels, parts, first, middle);
  add_up_in_tree(kernels, parts, middle, last);
  kernels.add(parts[first].view(), parts[middle].view());
}

/// The ids of this process's threads.
std::set<std::string> threads_now() {
  std::set<std::string> ids;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"})
    ids.insert(task.path().filename().string());
  return ids;
}

/// f32[rows, columns] at `offset` bytes behind an aligned address.
class AtOffset {
 public:
  AtOffset(const Tensor& values, std::size_t offset)
      : buffer_{allocate_host(values.view().bytes() + offset)},
        view_{buffer_.data() + offset, values.shape(), values.dtype()} {
    copy(values.view(), view_);
  }
  const TensorView& view() const { return view_; }

 private:
  Buffer buffer_;
  TensorView view_;
};

}  // namespace

TEST_CASE("products of every transposition and odd shapes are those of three naive loops") {
  for (const auto& kernels : all_kernels())
    for (const auto transpose_a : {Kernels::Transpose::no, Kernels::Transpose::yes})
      for (const auto transpose_b : {Kernels::Transpose::no, Kernels::Transpose::yes})
        for (Product p : {Product{1, 1, 1}, Product{1, 10, 512}, Product{3, 7, 5}, Product{32, 10, 65},
                          Product{17, 33, 129}, Product{64, 128, 200}}) {
          p.transpose_a = transpose_a;
          p.transpose_b = transpose_b;
          INFO(kernels->name() << ' ' << p.m << 'x' << p.n << 'x' << p.k << " transposed "
                               << (transpose_a == Kernels::Transpose::yes) << (transpose_b == Kernels::Transpose::yes));
          // A sum of k products of numbers below 1, in any order and with or without fused additions, is off
          // by at most k rounding errors of at most k times half an epsilon.
          const double terms = static_cast<double>(p.k);
          CHECK(error_of(*kernels, DType::f32, p) <= terms * terms * std::numeric_limits<float>::epsilon() / 2);
          CHECK(error_of(*kernels, DType::f64, p) <= terms * terms * std::numeric_limits<double>::epsilon());
        }
}

TEST_CASE("the library's products are close to the reference's, and its f64 is the reference's") {
  const auto reference = make_kernels(Kernels::Choice::reference);
  const auto automatic = make_kernels(Kernels::Choice::automatic);
  for (const DType dtype : {DType::f32, DType::f64}) {
    const Tensor a = noise(dtype, {32, 784}, 1);
    const Tensor b = noise(dtype, {784, 64}, 2);
    const Tensor expected = Tensor::zeros(dtype, {32, 64});
    const Tensor got = Tensor::zeros(dtype, {32, 64});
    reference->matmul(a.view(), Kernels::Transpose::no, b.view(), Kernels::Transpose::no, expected.view());
    automatic->matmul(a.view(), Kernels::Transpose::no, b.view(), Kernels::Transpose::no, got.view());
    if (dtype == DType::f64) {
      CHECK(same_bits(expected.view(), got.view()));
      continue;
    }
    // Errors of a sum of 784 random terms grow like the root of their number, on partial sums of about
    // sqrt(784 / 9): 28 * 9.3 * 6e-8 = 1.6e-5 is one standard deviation's bound on either side; four of both
    // are allowed.
    const auto x = in_double(expected);
    const auto y = in_double(got);
    for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::abs(x[i] - y[i]) <= 1.3e-4);
  }
}

TEST_CASE("a sum of products is the tree of them, the reference's bit for bit, the library's to rounding") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64})
      for (const auto& [m, n] : {std::pair{17, 33}, std::pair{300, 200}, std::pair{1, 1}, std::pair{0, 3}})
        for (std::uint64_t count = 1; count <= 9; ++count) {
          INFO(kernels->name() << ' ' << m << 'x' << n << ", " << count << " products");
          std::vector<Tensor> memory, products;
          std::vector<Kernels::Factors> factors;
          for (std::uint64_t i = 0; i < count; ++i) {
            // Of an odd number some have no rows, which a library leaves to the reference.
            const std::int64_t rows = i % 3 == 2 && count % 2 == 1 ? 0 : static_cast<std::int64_t>(i) + 5;
            memory.push_back(noise(dtype, {rows, m}, 2 * i));
            memory.push_back(noise(dtype, {rows, n}, 2 * i + 1));
            factors.push_back({memory[2 * i].view(), memory[2 * i + 1].view()});
            products.push_back(Tensor::zeros(dtype, {m, n}));
            kernels->matmul(factors[i].a, Kernels::Transpose::yes, factors[i].b, Kernels::Transpose::no,
                            products[i].view());
          }
          // Whoever looks at a product alone sees all of it, whether it is added or not.
          std::int64_t shown = 0;
          factors.back().on_product = [&](const TensorView& rows) {
            const std::int64_t first = shown % std::max<std::int64_t>(1, m * n);
            CHECK(same_bits(rows, products.back().view().slice(first, rows.count()).reshaped(rows.shape())));
            shown += rows.count();
          };
          factors.push_back(factors.back());
          factors.back().only_shown = true;
          const Tensor sum = filled(dtype, {m, n}, not_a_number);  // overwritten
          kernels->sum_of_products(factors, sum.view());
          CHECK(shown == 2 * sum.count());
          add_up_in_tree(*kernels, products, 0, count);
          if (kernels->name() == "reference") {
            CHECK(same_bits(sum.view(), products[0].view()));
            continue;
          }
          // Two orders of a sum of up to 80 terms below 1.
          const double epsilon =
              dtype == DType::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
          const auto x = in_double(sum);
          const auto y = in_double(products[0]);
          for (std::size_t i = 0; i < x.size(); ++i) REQUIRE(std::abs(x[i] - y[i]) <= 80 * 80 * epsilon);
        }
}

TEST_CASE("the library's sum of products has the bits of the tree where it promises them: on this machine's shapes") {
  const auto kernels = make_kernels(Kernels::Choice::automatic);
  // Blocks of several sizes, and a last one that is larger than the others.
  for (const auto& [m, n] : {std::pair{784, 512}, std::pair{512, 10}, std::pair{130, 500}}) {
    std::vector<Tensor> memory, products;
    std::vector<Kernels::Factors> factors;
    for (std::uint64_t i = 0; i < 4; ++i) {
      memory.push_back(noise(DType::f32, {32, m}, 2 * i));
      memory.push_back(noise(DType::f32, {32, n}, 2 * i + 1));
      factors.push_back({memory[2 * i].view(), memory[2 * i + 1].view()});
      products.push_back(Tensor::zeros(DType::f32, {m, n}));
      kernels->matmul(factors[i].a, Kernels::Transpose::yes, factors[i].b, Kernels::Transpose::no, products[i].view());
    }
    const Tensor sum = filled(DType::f32, {m, n}, not_a_number);
    kernels->sum_of_products(factors, sum.view());
    // Once more, with an onlooker of one on the left of a pair, of one on the right, and of two that are not added.
    std::array<std::int64_t, 6> shown{};
    for (const std::size_t i : {1U, 2U}) factors.push_back({factors[i].a, factors[i].b, {}, true});
    for (const std::size_t i : {0U, 3U, 4U, 5U})
      factors[i].on_product = [&, i](const TensorView& rows) {
        const TensorView product = products[i < 4 ? i : i - 3].view();
        CHECK(same_bits(rows, product.slice(shown[i], rows.count()).reshaped(rows.shape())));
        shown[i] += rows.count();
      };
    const Tensor watched = filled(DType::f32, {m, n}, not_a_number);
    kernels->sum_of_products(factors, watched.view());
    CHECK(shown == std::array<std::int64_t, 6>{m * n, 0, 0, m * n, m * n, m * n});
    add_up_in_tree(*kernels, products, 0, 4);
    CHECK(same_bits(sum.view(), products[0].view()));
    CHECK(same_bits(watched.view(), products[0].view()));
  }
}

TEST_CASE("products without rows, columns or terms are empty or zero") {
  for (const auto& kernels : all_kernels())
    for (const DType dtype : {DType::f32, DType::f64}) {
      CHECK(error_of(*kernels, dtype, {0, 4, 3}) == 0);
      CHECK(error_of(*kernels, dtype, {4, 0, 3, Kernels::Transpose::yes, Kernels::Transpose::yes}) == 0);
      CHECK(error_of(*kernels, dtype, {4, 3, 0}) == 0);
      CHECK(error_of(*kernels, dtype, {4, 3, 0, Kernels::Transpose::yes, Kernels::Transpose::yes}) == 0);
    }
}

TEST_CASE("a product has the same bits wherever its operands lie, whenever and on whichever thread it runs") {
  for (const auto& kernels : all_kernels())
    for (const Product& p : {Product{32, 48, 100}, Product{64, 10, 32, Kernels::Transpose::yes}, Product{1, 33, 70},
                             Product{32, 40, 10, Kernels::Transpose::no, Kernels::Transpose::yes}}) {
      const Tensor a = noise(DType::f32, p.a(), 3);
      const Tensor b = noise(DType::f32, p.b(), 4);
      const Tensor first = Tensor::zeros(DType::f32, {p.m, p.n});
      kernels->matmul(a.view(), p.transpose_a, b.view(), p.transpose_b, first.view());
      for (const std::size_t offset : {0, 4, 16, 64, 100}) {
        const AtOffset x{a, offset};
        const AtOffset y{b, offset / 2 / 4 * 4};
        const AtOffset z{filled(DType::f32, {p.m, p.n}, not_a_number), 104 - offset};
        std::thread{[&] { kernels->matmul(x.view(), p.transpose_a, y.view(), p.transpose_b, z.view()); }}.join();
        CHECK(same_bits(first.view(), z.view()));
      }
    }
}

TEST_CASE("a row of the reference's product has the same bits among any number of rows") {
  const auto kernels = make_kernels(Kernels::Choice::reference);
  const Tensor a = noise(DType::f32, {33, 50}, 5);
  const Tensor b = noise(DType::f32, {50, 21}, 6);
  const Tensor c = Tensor::zeros(DType::f32, {33, 21});
  kernels->matmul(a.view(), Kernels::Transpose::no, b.view(), Kernels::Transpose::no, c.view());
  for (const std::int64_t rows : {1, 3, 8, 32}) {
    const Tensor part = Tensor::zeros(DType::f32, {rows, 21});
    kernels->matmul(a.view().slice(0, rows * 50).reshaped({rows, 50}), Kernels::Transpose::no, b.view(),
                    Kernels::Transpose::no, part.view());
    CHECK(same_bits(part.view(), c.view().slice(0, rows * 21)));
  }
}

TEST_CASE("the reference adds the terms of a product in ascending order, however its operands lie") {
  const auto kernels = make_kernels(Kernels::Choice::reference);
  const Tensor terms = f32({1e8f, -1e8f, 1}, {3});  // in any other order the 1 is lost
  const Tensor ones = f32({1, 1, 1}, {3});
  const Tensor sum = filled(DType::f32, {1, 1}, not_a_number);
  for (const auto transpose_a : {Kernels::Transpose::no, Kernels::Transpose::yes})
    for (const auto transpose_b : {Kernels::Transpose::no, Kernels::Transpose::yes}) {
      kernels->matmul(terms.view().reshaped(transpose_a == Kernels::Transpose::yes ? Shape{3, 1} : Shape{1, 3}),
                      transpose_a,
                      ones.view().reshaped(transpose_b == Kernels::Transpose::yes ? Shape{1, 3} : Shape{3, 1}),
                      transpose_b, sum.view());
      CHECK(sum.to_vector<float>()[0] == 1);
    }
}

TEST_CASE("more threads give a product that is as right") {
  const auto kernels = make_kernels(Kernels::Choice::automatic, Kernels::Threads{2});
  CHECK(error_of(*kernels, DType::f32, {64, 128, 200}) <= 200 * 200 * std::numeric_limits<float>::epsilon() / 2);
}

TEST_CASE("a product runs on as many threads as its kernels were told, on whichever thread it is called") {
  // A caller that never multiplied before has no helpers yet; those it gets stay with it. Threads of earlier
  // tests may still be on their way out, so ids are compared, not counts.
  const auto helpers_of = [](Kernels::Threads threads) {
    const auto kernels = make_kernels(Kernels::Choice::automatic, threads);
    std::set<std::string> helpers;
    std::thread{[&] {
      const auto before = threads_now();
      error_of(*kernels, DType::f32, {256, 128, 128});
      const auto after = threads_now();
      std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                          std::inserter(helpers, helpers.end()));
    }}.join();
    return helpers.size();
  };
  const bool library = make_kernels(Kernels::Choice::automatic)->name() == "oneDNN";
  CHECK(helpers_of(Kernels::Threads{1}) == 0);
  CHECK(helpers_of(Kernels::Threads{3}) == (library ? 2 : 0));
}
