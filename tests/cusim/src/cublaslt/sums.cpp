// Compiled for speed whatever the rest is compiled for: training on cusim spends its time here.
#pragma GCC optimize("O3")

#include "cublaslt/sums.hpp"

namespace cusim::cublaslt {
namespace {

/// Rows that are summed at once, so that a vector unit has work and the sums stay in cache.
constexpr std::size_t rows_at_once = 64;

template <class T>
struct Factors {
  const T* a;
  std::size_t stride;
  std::size_t rows;  ///< at most rows_at_once
  const T* b;
};

template <class T>
void add(T* __restrict sums, const T* __restrict more, std::size_t rows) {
  for (std::size_t i = 0; i < rows; ++i) sums[i] += more[i];
}

template <class T>
void add_straight(const Factors<T>& of, std::size_t begin, std::size_t end, std::size_t step, T* __restrict sums) {
  for (std::size_t i = 0; i < of.rows; ++i) sums[i] = 0;
  for (std::size_t l = begin; l < end; l += step) {
    const T* const __restrict a = of.a + l * of.stride;
    const T b = of.b[l];
    for (std::size_t i = 0; i < of.rows; ++i) sums[i] += a[i] * b;
  }
}

template <class T>
void add_blocks(const Factors<T>& of, std::size_t count, T* sums) {
  constexpr std::size_t block = 8;
  T more[rows_at_once];
  for (std::size_t i = 0; i < of.rows; ++i) sums[i] = 0;
  for (std::size_t l = 0; l < count; l += block) {
    add_straight(of, l, l + block < count ? l + block : count, 1, more);
    add(sums, more, of.rows);
  }
}

template <class T>
void add_pairs(const Factors<T>& of, std::size_t begin, std::size_t end, T* sums) {
  if (end - begin <= 2) return add_straight(of, begin, end, 1, sums);
  const std::size_t middle = begin + (end - begin) / 2;
  T more[rows_at_once];
  add_pairs(of, begin, middle, sums);
  add_pairs(of, middle, end, more);
  add(sums, more, of.rows);
}

template <class T>
void add_lanes(const Factors<T>& of, std::size_t count, T* sums) {
  constexpr std::size_t lanes = 4;
  T more[rows_at_once];
  add_straight(of, 0, count, lanes, sums);
  for (std::size_t lane = 1; lane < lanes && lane < count; ++lane) {
    add_straight(of, lane, count, lanes, more);
    add(sums, more, of.rows);
  }
}

template <class T>
void sum_all(Sums order, const T* a, std::size_t stride, std::size_t rows, const T* b, std::size_t count, T* sums) {
  for (std::size_t at = 0; at < rows; at += rows_at_once) {
    const Factors<T> of{a + at, stride, rows - at < rows_at_once ? rows - at : rows_at_once, b};
    switch (order) {
      case Sums::straight: add_straight(of, 0, count, 1, sums + at); break;
      case Sums::blocks: add_blocks(of, count, sums + at); break;
      case Sums::pairs: add_pairs(of, 0, count, sums + at); break;
      case Sums::lanes: add_lanes(of, count, sums + at); break;
    }
  }
}

}  // namespace

void sum(Sums order, const float* a, std::size_t stride, std::size_t rows, const float* b, std::size_t count,
         float* sums) {
  sum_all(order, a, stride, rows, b, count, sums);
}

void sum(Sums order, const double* a, std::size_t stride, std::size_t rows, const double* b, std::size_t count,
         double* sums) {
  sum_all(order, a, stride, rows, b, count, sums);
}

}  // namespace cusim::cublaslt
