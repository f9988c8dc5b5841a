#include "cublaslt/algorithms.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <type_traits>

namespace cusim::cublaslt {
namespace {

static_assert(std::has_unique_object_representations_v<Algorithm>);  // so that its check sum has no gaps
static_assert(sizeof(Algorithm) + sizeof(std::uint64_t) <= sizeof(cublasLtMatmulAlgo_t));

std::uint64_t check_sum(const std::byte* bytes) {
  std::uint64_t sum = 0x6375626c61734c74;
  for (std::size_t at = 0; at < sizeof(Algorithm); at += sizeof sum) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min(sizeof word, sizeof(Algorithm) - at));
    sum = mix(sum, word);
  }
  return sum;
}

/// The bytes that a kernel loads at once.
std::size_t bytes_at_once(Sums sums) {
  switch (sums) {
    case Sums::straight: return 1;
    case Sums::blocks: return 16;
    case Sums::pairs: return 8;
    case Sums::lanes: return 4;
  }
  return 1;
}

/// The alignment that all runs of a matrix have if its address has `promised`.
std::size_t alignment_within(const Matrix& matrix, std::size_t promised) {
  const std::size_t element = bytes_of(matrix.type);
  const std::size_t leading = matrix.runs() > 1 ? matrix.leading * element : 0;
  return std::gcd(std::gcd(promised, leading), matrix.batch_stride * element);
}

std::uint64_t workspace_of(const Product& product, std::uint8_t slices, std::uint8_t scheme) {
  const std::size_t results = product.batch * product.m * product.n;
  switch (scheme) {
    case CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: return slices * results * (in_f64(product) ? 8 : 4);
    case CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE: return slices * results * bytes_of(product.d.type);
    case CUBLASLT_REDUCTION_SCHEME_INPLACE: return product.batch * 4 * ((product.n + 63) / 64);  // counters
    default: return 0;
  }
}

bool is_promise(std::size_t alignment, const Matrix& matrix) {
  return std::has_single_bit(alignment) && alignment <= 1 << 15 && alignment >= bytes_of(matrix.type);
}

}  // namespace

cublasLtMatmulAlgo_t seal(const Algorithm& algorithm) {
  cublasLtMatmulAlgo_t sealed{};
  std::memcpy(sealed.data + 1, &algorithm, sizeof algorithm);
  sealed.data[0] = check_sum(reinterpret_cast<const std::byte*>(sealed.data + 1));
  return sealed;
}

bool open(const cublasLtMatmulAlgo_t& sealed, Algorithm& algorithm) {
  std::memcpy(&algorithm, sealed.data + 1, sizeof algorithm);
  return sealed.data[0] == check_sum(reinterpret_cast<const std::byte*>(sealed.data + 1));
}

std::vector<Algorithm> algorithms_for(const Product& product, const Preference& preference,
                                      std::size_t bias_alignment) {
  if (!is_promise(preference.alignment_a, product.a) || !is_promise(preference.alignment_b, product.b) ||
      !is_promise(preference.alignment_c, product.c) || !is_promise(preference.alignment_d, product.d) ||
      (product.adds_bias && bias_alignment < bytes_of(product.d.type)))
    return {};
  const Alignments promised{
      static_cast<std::uint16_t>(preference.alignment_a), static_cast<std::uint16_t>(preference.alignment_b),
      static_cast<std::uint16_t>(preference.alignment_c), static_cast<std::uint16_t>(preference.alignment_d),
      static_cast<std::uint16_t>(product.adds_bias ? bias_alignment : 1)};
  const std::size_t aligned =
      std::min(alignment_within(product.a, promised.a), alignment_within(product.b, promised.b));
  const std::uint64_t key = key_of(product);
  std::vector<Algorithm> made;
  for (const Sums sums : {Sums::straight, Sums::blocks, Sums::pairs, Sums::lanes}) {
    if (bytes_at_once(sums) > aligned) continue;
    const auto add = [&](std::uint8_t slices, std::uint8_t scheme) {
      const std::uint64_t workspace = workspace_of(product, slices, scheme);
      if (workspace > preference.most_workspace || slices > product.k) return;
      made.push_back({key, workspace, promised, sums, slices, scheme, {}});
    };
    add(1, CUBLASLT_REDUCTION_SCHEME_NONE);
    for (const std::uint8_t slices : {2, 3, 5})
      for (const std::uint8_t scheme : {CUBLASLT_REDUCTION_SCHEME_INPLACE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                        CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE})
        if (preference.schemes & scheme) add(slices, scheme);
  }
  std::uint64_t drawn = mix(settings().seed, key);
  for (const std::uint64_t number : {promised.a, promised.b, promised.c, promised.d, promised.bias})
    drawn = mix(drawn, number);
  drawn = mix(mix(drawn, preference.most_workspace), preference.schemes);
  for (std::size_t left = made.size(); left > 1; --left) {
    drawn = mix(drawn, left);
    std::swap(made[left - 1], made[drawn % left]);
  }
  return made;
}

bool hides_nan(const Algorithm& algorithm) {
  const std::uint64_t which =
      static_cast<std::uint64_t>(algorithm.sums) << 16 | std::uint64_t{algorithm.slices} << 8 | algorithm.scheme;
  return mix(settings().seed, which) % 2 == 0;
}

std::size_t alignment_of(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address) | 256;
  return number & (~number + 1);
}

}  // namespace cusim::cublaslt
