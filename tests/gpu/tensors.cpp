// Tensors in the memory of a GPU.
#include <lockstep/core/base/error.hpp>

#include "gpu_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

TEMPLATE_TEST_CASE("tensors go to a GPU and back", "", float, double, std::int32_t, std::int64_t, std::uint8_t) {
  for (const std::int64_t count : {0, 1, 7, 1000}) {
    std::vector<TestType> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<TestType>(i * 3 + 1));
    const Tensor there = Tensor::copy_of(Tensor::from(values, {count}).view(), gpu().stream);
    CHECK(there.view().device() == DeviceKind::cuda);
    CHECK(there.dtype() == detail::dtype_of<TestType>);
    CHECK(there.to_vector<TestType>() == values);
    const Tensor back = Tensor::on_host(there.view());
    CHECK(back.view().device() == DeviceKind::cpu);
    CHECK(back.to_vector<TestType>() == values);
    const Tensor across = Tensor::copy_of(there.view(), gpu().stream);
    there.view().fill_zero(gpu().stream);
    CHECK(across.to_vector<TestType>() == values);
    CHECK(there.to_vector<TestType>() == std::vector<TestType>(values.size()));
  }
}

TEST_CASE("a tensor of zeros on a GPU is zero, also where memory was used before") {
  for (int again = 0; again < 5; ++again) {
    const Tensor zeros = Tensor::zeros(DType::f32, {1000, 10}, gpu().stream);
    CHECK(zeros.shape() == Shape{1000, 10});
    CHECK(zeros.to_vector<float>() == std::vector<float>(10000));
    copy(ops::filled(DType::f32, {1000, 10}, 3).view(), zeros.view(), gpu().stream);
  }
}

TEST_CASE("parts of a tensor are copied where they belong") {
  const Tensor there = Tensor::copy_of(ops::f32({1, 2, 3, 4, 5, 6}, {2, 3}).view(), gpu().stream);
  copy(ops::f32({7, 8}, {2}).view(), there.view().slice(3, 2), gpu().stream);
  CHECK(there.to_vector<float>() == std::vector<float>{1, 2, 3, 7, 8, 6});
  CHECK(there.view().slice(1, 3).to_vector<float>() == std::vector<float>{2, 3, 7});
  const Tensor host = Tensor::zeros(DType::f32, {2});
  copy(there.view().slice(4, 2), host.view(), gpu().stream);
  gpu().stream.synchronize();
  CHECK(host.to_vector<float>() == std::vector<float>{8, 6});
  CHECK(there.view().slice(4, 1).item<float>() == 8);  // waits
}

TEST_CASE("the host has no place in a GPU's memory") {
  const Tensor there = Tensor::zeros(DType::f32, {2}, gpu().stream);
  const Tensor here = Tensor::zeros(DType::f32, {2});
  CHECK_THROWS_AS(there.view().elements<float>(), InvalidArgument);
  CHECK_THROWS_AS(there.to_vector<double>(), InvalidArgument);
  CHECK_THROWS_AS(copy(there.view(), here.view()), InvalidArgument);
  CHECK_THROWS_AS(copy(here.view(), there.view()), InvalidArgument);
  CHECK_THROWS_AS(Tensor::copy_of(there.view()), InvalidArgument);
  CHECK_THROWS_AS(there.view().fill_zero(), InvalidArgument);
  CHECK_THROWS_AS(here.view().fill_zero(gpu().stream), InvalidArgument);
}
