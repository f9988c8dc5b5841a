#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/base/digest.hpp>
#include <lockstep/base/error.hpp>
#include <lockstep/reduce/declared_sums.hpp>

namespace lockstep {

std::string describe(const SumList& list) {
  const std::int64_t elements = std::accumulate(list.counts.begin(), list.counts.end(), std::int64_t{0});
  return fmt::format("{} sums of {} {} (digest {})", list.counts.size(), elements, name_of(list.dtype),
                     to_hex(digest_of(fmt::format("{}", fmt::join(list.counts, ",")))));
}

void DeclaredSums::all_reduce(const TensorView& tensor) {
  if (made_ == list_.counts.size())
    throw InvalidArgument{
        fmt::format("a sum of {} behind the {} that were declared", describe(tensor), list_.counts.size())};
  if (tensor.dtype() != list_.dtype || tensor.count() != list_.counts[made_])
    throw InvalidArgument{fmt::format("sum {} of {}: {}; declared were {} elements of {}", made_ + 1,
                                      list_.counts.size(), describe(tensor), list_.counts[made_],
                                      name_of(list_.dtype))};
  ++made_;
  reductions_.all_reduce(ReduceOp::sum, {&tensor, 1});
}

void DeclaredSums::require_all_made() const {
  if (made_ < list_.counts.size())
    throw InvalidArgument{fmt::format("{} of {} declared sums were made", made_, list_.counts.size())};
}

void DeclaredSums::make_the_rest() {
  while (made_ < list_.counts.size()) all_reduce(Tensor::zeros(list_.dtype, {list_.counts[made_]}, stream_).view());
}

}  // namespace lockstep
