// Tensors and views: making, slicing and copying them.
#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/device/device.hpp"
#include "core/device/devices.hpp"
#include "core/device/gpu_absence.hpp"
#include "core/tensor/inside.hpp"

using namespace lockstep;

TEST_CASE("a tensor holds the values it was made from") {
  const Tensor t = Tensor::from({1.f, 2.f, 3.f, 4.f, 5.f, 6.f}, {2, 3});
  CHECK(t.shape() == Shape{2, 3});
  CHECK(t.dtype() == DType::f32);
  CHECK(t.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  CHECK(describe(t.view()) == "f32[2, 3]");
  CHECK(Tensor::scalar(std::int64_t{7}).to_vector<std::int64_t>() == std::vector<std::int64_t>{7});
  CHECK(Tensor::zeros(DType::u8, {2}).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{0, 0});
}

TEST_CASE("a tensor may be made for values to come, and hold 16-bit floats") {
  const Tensor t = Tensor::uninitialised(DType::f16, {2, 1});
  CHECK(describe(t.view()) == "f16[2, 1]");
  t.view().elements<Half>()[0] = t.view().elements<Half>()[1] = Half{1.5f};
  CHECK(t.to_vector<Half>() == std::vector<Half>{Half{1.5f}, Half{1.5f}});
  CHECK_THROWS_AS(t.to_vector<BFloat16>(), InvalidArgument);
}

TEST_CASE("a tensor of no elements is a tensor") {
  CHECK(Tensor::zeros(DType::f32, {0, 5}).to_vector<float>().empty());
  CHECK(Tensor{}.count() == 0);
  CHECK(Tensor::copy_of(Tensor{}.view()).count() == 0);
}

TEST_CASE("values that do not fill the shape, and reads of another type, are refused") {
  CHECK_THROWS_WITH(Tensor::from({1.f, 2.f}, {3}), Catch::Contains("2 values of f32") && Catch::Contains("[3]"));
  CHECK_THROWS_AS(Tensor::scalar(1.f).to_vector<double>(), InvalidArgument);
}

TEST_CASE("copies of a tensor share its elements, copy_of does not") {
  const Tensor t = Tensor::from({1, 2}, {2});
  const Tensor same = t;
  const Tensor other = Tensor::copy_of(t.view());
  t.view().elements<std::int32_t>()[0] = 9;
  CHECK(same.to_vector<std::int32_t>() == std::vector<std::int32_t>{9, 2});
  CHECK(other.to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 2});
}

TEST_CASE("slices and other shapes are views of the same elements") {
  const Tensor t = Tensor::from({1., 2., 3., 4.}, {2, 2});
  CHECK(t.view().slice(1, 2).to_vector<double>() == std::vector<double>{2, 3});
  CHECK(t.view().reshaped({4, 1}).shape() == Shape{4, 1});
  CHECK_THROWS_AS(t.view().slice(3, 2), InvalidArgument);
  CHECK_THROWS_AS(t.view().reshaped({3}), InvalidArgument);
}

TEST_CASE("memory is aligned and freed once") {
  Buffer a = allocate_host(10);
  CHECK(reinterpret_cast<std::uintptr_t>(a.data()) % Buffer::alignment == 0);
  Buffer b = std::move(a);
  CHECK(a.data() == nullptr);
  CHECK(b.bytes() == 10);
  b = Buffer{};
  CHECK(b.data() == nullptr);
}

TEST_CASE("why there is no GPU is said by the code of CUDA, its driver and CUDA_VISIBLE_DEVICES") {
  const auto why = [](int code, const char* visible = nullptr, int driver = 0) {
    return detail::why_no_gpu(
        {.code = code, .text = "its text", .driver_cuda = driver, .build_cuda = 13000, .visible = visible});
  };
  CHECK(why(35) == "libcuda.so.1, the NVIDIA driver, was not found");
  CHECK(why(35, "0", 12020) == "the NVIDIA driver is too old: it supports CUDA 12.2, and this build needs 13.0");
  CHECK(why(100) == "the NVIDIA driver finds none");
  CHECK(why(100, "") == "CUDA_VISIBLE_DEVICES is '', which shows none");
  CHECK(why(100, "-1\n", 13000) == "CUDA_VISIBLE_DEVICES is '-1\\x0a', which shows none");
  for (const auto& [code, word] : {std::pair{34, "stub"},
                                   {46, "other processes"},
                                   {800, "may not"},
                                   {802, "not ready"},
                                   {803, "different versions"},
                                   {804, "compatibility"}}) {
    CHECK_THAT(why(code), Catch::Contains(word));
    CHECK(why(code, "0", 13000) == why(code));
  }
  CHECK(why(999) == "cudaGetDeviceCount says its text (999)");
}

TEST_CASE("a program on the layers themselves opens no GPU backend: it counts no GPU, and can bind none") {
  CHECK(cuda_device_count() == 0);
  CHECK(cuda_device_uuids().empty());
  CHECK(detail::why_no_cuda_device() == "this program links no GPU backend");
  CHECK_THROWS_AS(make_cuda_device(0), DeviceError);
  CHECK_THROWS_WITH(make_cuda_device(0), "this program links no GPU backend");
}

TEST_CASE("a view of another device's memory is neither read in place nor copied without that device's stream") {
  float unused = 0;
  const TensorView there{reinterpret_cast<std::byte*>(&unused), {1}, DType::f32, DeviceKind::cuda};
  const Tensor here = Tensor::scalar(1.f);
  CHECK_THROWS_WITH(there.elements<float>(), "f32[1] is in the memory of a cuda device, not the host's");
  CHECK_THROWS_WITH(copy(there, here.view().reshaped({1})),
                    "f32[1] is in the memory of a cuda device; copying it needs a stream of that");
  CHECK_THROWS_AS(copy(here.view().reshaped({1}), there), InvalidArgument);
  CHECK_THROWS_WITH(there.fill_zero(),
                    "f32[1] is in the memory of a cuda device; a stream of a cpu device cannot clear it");
}

TEST_CASE("the one element of a tensor is its item, whatever the shape, and other tensors have none") {
  CHECK(Tensor::scalar(2.5).item<double>() == 2.5);
  CHECK(Tensor::from({INT64_C(-7)}, {1, 1}).item<std::int64_t>() == -7);
  const Tensor row = Tensor::from({1.f, 2.f, 3.f}, {3});
  CHECK(row.view().slice(1, 1).item<float>() == 2);
  const Here here = Here::current();
  const std::string at = " (tensor.cpp:" + std::to_string(here.line()) + "): ";
  CHECK_THROWS_WITH(row.item<float>(here), "item" + at + "f32[3] has 3 elements; expected one");
  CHECK_THROWS_WITH(row.item<float>(), Catch::StartsWith("item (tensor.cpp:"));
  CHECK_THROWS_WITH(row.view().item<float>(Here{}), "item: f32[3] has 3 elements; expected one");
  CHECK_THROWS_WITH(Tensor::zeros(DType::f32, {0}).item<float>(here),
                    "item" + at + "f32[0] has 0 elements; expected one");
  CHECK_THROWS_WITH(Tensor::scalar(2.5).item<float>(here), "item" + at + "f64[] was read as f32");
  CHECK_THROWS_WITH(row.to_vector<double>(here), "to_vector" + at + "f32[3] was read as f64");
  CHECK_THROWS_WITH(row.to_vector<double>(), Catch::StartsWith("to_vector (tensor.cpp:"));
}

TEST_CASE("memory for copies is plain memory where no copy is needed") {
  const Tensor pinned = Tensor::pinned(DType::i32, {3}, Stream::host());
  CHECK(pinned.device() == DeviceKind::cpu);
  CHECK(pinned.to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 0, 0});
}

TEST_CASE("rows are stacked to one tensor, in memory of its own", "[F-26]") {
  const std::vector<Tensor> rows{Tensor::from({1.f, 2.f}, {1, 2}), Tensor::from({3.f, 4.f}, {1, 2}),
                                 Tensor::from({5.f, 6.f}, {1, 2})};
  const Tensor stacked = Tensor::stack(rows);
  CHECK(describe(stacked.view()) == "f32[3, 1, 2]");
  CHECK(stacked.to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
  rows[0].view().elements<float>()[0] = 9;
  CHECK(stacked.to_vector<float>()[0] == 1);
  CHECK(Tensor::stack(std::vector{Tensor::scalar(std::int64_t{7})}).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{7});
  CHECK(describe(Tensor::stack(std::vector(2, Tensor::zeros(DType::u8, {0, 3}))).view()) == "u8[2, 0, 3]");
}

TEST_CASE("rows that differ in shape or type, or that are on a GPU, are not stacked", "[F-26]") {
  const auto refused = [](const std::vector<Tensor>& rows) {
    CHECK_THROWS_AS(Tensor::stack(rows), InvalidArgument);
    try {
      (void)Tensor::stack(rows);
    } catch (const InvalidArgument& error) {
      return std::string{error.what()};
    }
    return std::string{};
  };
  const Tensor two = Tensor::zeros(DType::f32, {2});
  CHECK(refused({two, two, Tensor::zeros(DType::f32, {3})}) == "cannot stack f32[2] and f32[3]");
  CHECK(refused({two, Tensor::zeros(DType::i32, {2})}) == "cannot stack f32[2] and i32[2]");
  CHECK(refused({}) == "0 tensors to stack; expected 1 or more");
  float unused[2] = {};
  const Tensor there = tensor_in(nullptr, {reinterpret_cast<std::byte*>(unused), {2}, DType::f32, DeviceKind::cuda});
  CHECK(refused({there}) == "cannot stack f32[2] in the memory of a cuda device; expected the host's");
}
