#include "sync/optim/parts_of_threads.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sync/optim/plan.hpp"
#include "sync/update/square_blocks.hpp"
#include "sync/update/update_kernels.hpp"

namespace lockstep::detail {
namespace {

/// Elements, so that no two threads write to the same line of a cache.
constexpr std::int64_t granule = 64;

/// Where part `part` of `parts` of `count` things begins.
std::int64_t begin_of(std::int64_t count, std::size_t part, std::size_t parts) {
  return count * static_cast<std::int64_t>(part) / static_cast<std::int64_t>(parts);
}

/// The sums of blocks [first, last) of all that `parts` have, at their numbers in `sums`.
void sum_blocks(const UpdateKernels& kernels, std::span<const TensorView> parts, std::int64_t first, std::int64_t last,
                std::vector<double>& sums) {
  std::int64_t next = 0;  // the number of a part's first block
  for (const TensorView& part : parts) {
    const std::int64_t begin = std::exchange(next, next + square_blocks(part.count()));
    const std::int64_t from = std::max(first, begin), to = std::min(last, next);
    if (from >= to) continue;
    const std::int64_t element = (from - begin) * square_block;
    const std::int64_t elements = std::min((to - begin) * square_block, part.count()) - element;
    const TensorView own{reinterpret_cast<std::byte*>(sums.data() + from), {to - from}, DType::f64};
    kernels.block_squares(part.reshaped({part.count()}).slice(element, elements), own);
  }
}

}  // namespace

VariableStore::FlatRange part_for(const VariableStore::FlatRange& range, std::size_t thread, std::size_t threads) {
  const std::int64_t count = range.values.count();
  const auto begin = [&](std::size_t part) {
    return part == threads ? count : begin_of(count, part, threads) / granule * granule;
  };
  return part_of(range, begin(thread), begin(thread + 1) - begin(thread));
}

Answer<double> start_sum_of_squares(const UpdateKernels& kernels, std::span<const TensorView> parts,
                                    const std::optional<StepThreads>& threads) {
  if (!threads) return kernels.start_sum_of_squares(parts);
  std::int64_t blocks = 0;
  for (const TensorView& part : parts) blocks += square_blocks(part.count());
  std::vector<double> sums(static_cast<std::size_t>(blocks));
  threads->run([&](std::size_t thread) {
    sum_blocks(kernels, parts, begin_of(blocks, thread, threads->count), begin_of(blocks, thread + 1, threads->count),
               sums);
  });
  return UpdateKernels::sum_of_blocks(std::move(sums));
}

}  // namespace lockstep::detail
