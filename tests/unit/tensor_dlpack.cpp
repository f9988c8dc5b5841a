// Tensors that other libraries hand over and take, as DLPack has them.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/tensor/tensor.hpp>

#include "core/tensor/dlpack_abi.hpp"

using namespace lockstep;

namespace {

/// What another library hands over: six floats, and a count of the deleter's calls.
template <class Managed>
struct Foreign {
  Foreign() {
    managed.tensor = {.data = values.data(),
                      .device = {dlpack::cpu, 0},
                      .rank = 2,
                      .type = {dlpack::floating_point, 32, 1},
                      .shape = shape.data(),
                      .strides = nullptr,
                      .byte_offset = 0};
    managed.context = this;
    managed.deleter = [](Managed* self) { ++static_cast<Foreign*>(self->context)->deleted; };
  }

  std::string refusal() {
    try {
      (void)Tensor::from_dlpack(&managed);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "none";
  }

  alignas(8) std::vector<float> values{1, 2, 3, 4, 5, 6};
  std::vector<std::int64_t> shape{2, 3}, strides{3, 1};
  int deleted = 0;
  Managed managed{};
};

using Old = Foreign<DLManagedTensor>;

struct Versioned : Foreign<DLManagedTensorVersioned> {
  Versioned() { managed.major = 1; }
};

template <class F>
void check_shared_until_the_last() {
  F foreign;
  std::optional<Tensor> taken = Tensor::from_dlpack(&foreign.managed);
  CHECK(taken->shape() == Shape{2, 3});
  CHECK(taken->dtype() == DType::f32);
  CHECK(taken->device() == DeviceKind::cpu);
  CHECK(taken->view().data() == reinterpret_cast<std::byte*>(foreign.values.data()));
  taken->view().elements<float>()[5] = 60;
  CHECK(foreign.values.back() == 60);
  Tensor part = taken->sharing(taken->view().slice(1, 2));
  taken.reset();
  CHECK(foreign.deleted == 0);
  CHECK(part.to_vector<float>() == std::vector<float>{2, 3});
  part = Tensor{};
  CHECK(foreign.deleted == 1);
}

}  // namespace

TEST_CASE("a tensor of another library shares its memory, and gives it back with its last copy") {
  check_shared_until_the_last<Old>();
  check_shared_until_the_last<Versioned>();
  Old lent;  // by a library that frees it itself
  lent.managed.deleter = nullptr;
  CHECK(Tensor::from_dlpack(&lent.managed).to_vector<float>() == lent.values);
}

TEST_CASE("strides of dense rows, offsets, scalars and tensors without elements are taken") {
  Old strided;
  strided.managed.tensor.strides = strided.strides.data();
  strided.shape = {1, 3};
  strided.strides = {99, 1};  // of an axis with one element: never used
  strided.managed.tensor.shape = strided.shape.data();
  strided.managed.tensor.strides = strided.strides.data();
  strided.managed.tensor.byte_offset = 2 * sizeof(float);
  CHECK(Tensor::from_dlpack(&strided.managed).to_vector<float>() == std::vector<float>{3, 4, 5});

  Old scalar;
  scalar.managed.tensor.rank = 0;
  scalar.managed.tensor.shape = nullptr;
  scalar.managed.tensor.device.type = dlpack::cuda_host;
  CHECK(Tensor::from_dlpack(&scalar.managed).shape() == Shape{});

  Old empty;
  empty.shape = {0, 3};
  empty.managed.tensor.data = nullptr;
  CHECK(Tensor::from_dlpack(&empty.managed).shape() == Shape{0, 3});
  CHECK(empty.deleted == 1);
}

TEST_CASE("each element type goes to another library and comes back") {
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::i64, DType::u8}) {
    const Tensor tensor = Tensor::zeros(dtype, {4, 0, 5});
    CHECK(Tensor::from_dlpack(tensor.to_dlpack()).dtype() == dtype);
    CHECK(Tensor::from_dlpack(tensor.to_dlpack<DLManagedTensorVersioned>()).shape() == Shape{4, 0, 5});
  }
}

TEST_CASE("a tensor for another library keeps its memory, and says where each element is") {
  std::unique_ptr<DLManagedTensorVersioned, void (*)(DLManagedTensorVersioned*)> managed{
      Tensor::from({1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, {3, 1, 2}).to_dlpack<DLManagedTensorVersioned>(),
      [](auto* each) { each->deleter(each); }};
  CHECK(managed->major == 1);
  CHECK(managed->flags == 0);
  const dlpack::Tensor& tensor = managed->tensor;
  CHECK(std::vector(tensor.shape, tensor.shape + tensor.rank) == Shape{3, 1, 2});
  CHECK(std::vector(tensor.strides, tensor.strides + tensor.rank) == Shape{2, 2, 1});
  CHECK(tensor.device.type == dlpack::cpu);
  CHECK(tensor.byte_offset == 0);
  CHECK(static_cast<const double*>(tensor.data)[5] == 6);

  const Tensor shared = Tensor::from({7.F}, {1});
  DLManagedTensor* const old = shared.to_dlpack();
  *static_cast<float*>(old->tensor.data) = 8;
  old->deleter(old);
  CHECK(shared.to_vector<float>() == std::vector<float>{8});
}

TEST_CASE("what a Tensor cannot be is refused in a line, and stays the caller's") {
  const auto refusal = [](auto&& change) {
    Old foreign;
    change(foreign);
    const std::string told = foreign.refusal();
    CHECK(foreign.deleted == 0);
    return told;
  };
  CHECK(refusal([](Old& f) {
          f.strides = {1, 2};
          f.managed.tensor.strides = f.strides.data();
        }) == "DLPack: axis 1 of [2, 3] has the stride 2; expected 1, as dense rows have it");
  CHECK(refusal([](Old& f) {
          f.managed.tensor.type = {dlpack::floating_point, 32, 4};
        }) ==
        "DLPack: elements of type code 2 with 32 bits and 4 lanes; expected f32, f64, f16, bf16, i32, i64 or u8, one "
        "lane");
  CHECK_THAT(refusal([](Old& f) { f.managed.tensor.type = {6, 8, 1}; }), Catch::Contains("type code 6 with 8 bits"));
  CHECK(refusal([](Old& f) { f.managed.tensor.device.type = 10; }) ==
        "DLPack: memory of device type 10; expected the host's (1 or 3) or a GPU's (2)");
  CHECK(refusal([](Old& f) { f.managed.tensor.byte_offset = 2; }) ==
        "DLPack: the elements of f32[2, 3] are not aligned to 4 bytes");
  CHECK(refusal([](Old& f) { f.managed.tensor.data = nullptr; }) == "DLPack: f32[2, 3] without memory");
  CHECK(refusal([](Old& f) { f.managed.tensor.shape = nullptr; }) ==
        "DLPack: a tensor of 2 dimensions without a shape");
  CHECK(refusal([](Old& f) {
          f.shape.assign(9, 1);
          f.managed.tensor.shape = f.shape.data();
          f.managed.tensor.rank = 9;
        }) == "DLPack: a tensor of 9 dimensions; expected at most 8");
  CHECK_THAT(refusal([](Old& f) { f.shape.front() = -2; }), Catch::Contains("-2"));
  CHECK_THROWS_WITH(Tensor::from_dlpack(static_cast<DLManagedTensor*>(nullptr)), "DLPack: no tensor (a null pointer)");
  CHECK_THROWS_WITH(Tensor::from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)),
                    "DLPack: no tensor (a null pointer)");

  Versioned newer, constant;
  newer.managed.major = 2;
  CHECK(newer.refusal() == "DLPack: a tensor of version 2.0; expected 1.x");
  constant.managed.flags = dlpack::read_only;
  CHECK(constant.refusal() == "DLPack: a tensor that is read-only; expected one that may be written, such as a copy");
}
