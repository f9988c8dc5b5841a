// The algorithms for a product: which there are, which one a call may use, and in which order the library offers them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cublaslt/product.hpp"
#include "cublaslt/sums.hpp"

namespace cusim::cublaslt {

/// How far addresses are a power of two's multiple, as promised when an algorithm was asked for, in bytes.
struct Alignments {
  std::uint16_t a;
  std::uint16_t b;
  std::uint16_t c;
  std::uint16_t d;
  std::uint16_t bias;
};

/// What cublasLtMatmulAlgo_t holds.
struct Algorithm {
  std::uint64_t product;  ///< the key of the product that it is for
  std::uint64_t workspace_bytes;
  Alignments promised;
  Sums sums;
  std::uint8_t slices;  ///< parts of k that are summed apart
  std::uint8_t scheme;  ///< cublasLtReductionScheme_t, of how their sums become one
  std::uint8_t reserved[3];
};

cublasLtMatmulAlgo_t seal(const Algorithm& algorithm);

/// Whether `sealed` is what seal() made; writes `algorithm`.
bool open(const cublasLtMatmulAlgo_t& sealed, Algorithm& algorithm);

/// The algorithms within a preference's limits. Their order is drawn from the seed, the product and the limits, and is
/// the same in every call and every process of that seed: on silicon, the same question has the same answer.
std::vector<Algorithm> algorithms_for(const Product& product, const Preference& preference, std::size_t bias_alignment);

/// Whether the algorithm's ReLU makes a NaN zero. Drawn from the seed.
bool hides_nan(const Algorithm& algorithm);

/// The largest power of two, up to 256, that the address is a multiple of.
std::size_t alignment_of(const void* address);

}  // namespace cusim::cublaslt
