// Tensors to and from LibTorch by DLPack, without a copy.
// clang-format off: ahead of all that includes Catch2
#include "torch_and_catch.hpp"
// clang-format on

#include <vector>

#include <lockstep/core/tensor/tensor.hpp>
#include <lockstep/lockstep.hpp>

#include "torch_modules.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEST_CASE("a tensor of torch becomes one of lockstep, and the other way round, in the same memory") {
  at::Tensor theirs = torch::arange(6, at::kDouble).view({2, 3});
  {
    const Tensor ours = Tensor::from_dlpack(at::toDLPack(theirs));
    CHECK(ours.shape() == Shape{2, 3});
    CHECK(ours.view().data() == static_cast<void*>(theirs.data_ptr()));
    ours.view().elements<double>()[5] = 50;
  }
  CHECK(values_of(theirs) == Values{0, 1, 2, 3, 4, 50});

  Tensor ours = Tensor::from<float>({1, 2, 3}, {3});
  const at::Tensor view = at::fromDLPack(ours.to_dlpack());
  CHECK(view.data_ptr() == static_cast<void*>(ours.view().data()));
  ours = {};  // torch's keeps the memory
  CHECK(values_of(view) == Values{1, 2, 3});
}

TEST_CASE("a tensor of torch whose rows are not dense is refused, and stays torch's") {
  const at::Tensor transposed = torch::arange(6, at::kDouble).view({2, 3}).t();
  DLManagedTensor* const managed = at::toDLPack(transposed);
  CHECK_THROWS_AS(Tensor::from_dlpack(managed), InvalidArgument);
  managed->deleter(managed);
  CHECK(values_of(transposed) == Values{0, 3, 1, 4, 2, 5});
}
