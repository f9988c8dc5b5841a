// Streams, events and memory of a GPU.
#include "core/device/device.hpp"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include <lockstep/core/base/error.hpp>

#include "core/device/cuda/native.hpp"
#include "core/device/devices.hpp"
#include "gpu_support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::vector<std::byte> bytes_from(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) & 0xff);
  return bytes;
}

std::vector<std::byte> read(const Buffer& buffer) {
  std::vector<std::byte> bytes(buffer.bytes());
  read_device(buffer.kind(), bytes.data(), buffer.data(), bytes.size());
  return bytes;
}

/// Work that takes a GPU long enough to notice who does not wait for it: ones added `times` times.
Tensor slow_count(Stream& stream, const ops::Kernels& kernels, int times) {
  const std::int64_t count = most_blocks() * 1024;
  const Tensor ones = Tensor::copy_of(ops::filled(DType::f32, {count}, 1).view(), stream);
  Tensor sum = Tensor::zeros(DType::f32, {count}, stream);
  for (int i = 0; i < times; ++i) kernels.add(sum.view(), ones.view());
  return sum;
}

bool all_are(const Tensor& values, float expected) {
  const auto all = values.to_vector<float>();
  return std::all_of(all.begin(), all.end(), [&](float value) { return value == expected; });
}

/// Another stream copies `sum` to the host, and finds `expected` in its first and last elements.
void check_copied_by(Stream& other, const Tensor& sum, float expected) {
  const Buffer pinned = inside(gpu().stream).allocate_pinned(sum.view().bytes());
  other.copy(pinned.data(), sum.view().data(), pinned.bytes());
  other.synchronize();
  const TensorView values{pinned.data(), sum.shape(), DType::f32};
  CHECK(values.elements<float>().front() == expected);
  CHECK(values.elements<float>().back() == expected);
}

}  // namespace

TEST_CASE("a stream says whether it is being captured into a graph", "[B-25]") {
  const auto stream = gpu().device.make_stream();
  const cudaStream_t native = detail::native(*stream);
  CHECK_FALSE(stream->is_capturing());
  detail::check_cuda(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  CHECK(stream->is_capturing());
  cudaGraph_t graph = nullptr;
  detail::check_cuda(cudaStreamEndCapture(native, &graph), "cudaStreamEndCapture");
  CHECK_FALSE(stream->is_capturing());
  detail::check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
}

TEST_CASE("a GPU is a cuda device with its number in its name") {
  CHECK(gpu().device.kind() == DeviceKind::cuda);
  CHECK(gpu().device.name() == "cuda:0");
  CHECK(gpu().stream.kind() == DeviceKind::cuda);
}

TEST_CASE("a GPU that is not there cannot be bound, and those that are stay usable") {
  CHECK_THROWS_AS(make_cuda_device(cuda_device_count()), DeviceError);
  CHECK_THROWS_AS(make_cuda_device(-1), DeviceError);
  CHECK_THROWS_WITH(make_cuda_device(cuda_device_count()), Catch::StartsWith("cudaSetDevice failed on cuda:0: "));
  CHECK(all_are(slow_count(gpu().stream, gpu().kernels, 3), 3));
}

TEST_CASE("every GPU has a UUID of its own, and a size") {
  const auto uuids = cuda_device_uuids();
  CHECK(uuids.size() == static_cast<std::size_t>(cuda_device_count()));
  CHECK(std::set<std::string>{uuids.begin(), uuids.end()}.size() == uuids.size());
  for (const std::string& uuid : uuids) CHECK(uuid.size() == 32);
  CHECK(memory_bytes(DeviceKind::cuda) > std::uint64_t{1} << 30);
}

TEST_CASE("memory of a GPU is aligned, its own, and of any size") {
  std::vector<Buffer> buffers;
  std::set<std::byte*> addresses;
  for (const std::size_t bytes : {1, 3, 256, 1000, 1 << 20}) {
    buffers.push_back(inside(gpu().stream).allocate(bytes));
    CHECK(buffers.back().bytes() == bytes);
    CHECK(buffers.back().kind() == DeviceKind::cuda);
    CHECK(reinterpret_cast<std::uintptr_t>(buffers.back().data()) % Buffer::alignment == 0);
    addresses.insert(buffers.back().data());
  }
  CHECK(addresses.size() == buffers.size());
  const Buffer nothing = inside(gpu().stream).allocate(0);
  CHECK(nothing.bytes() == 0);
  gpu().stream.copy(nothing.data(), nothing.data(), 0);
  gpu().stream.fill_zero(nothing.data(), 0);
}

TEST_CASE("bytes go to a GPU, across it and back", "[large]") {
  for (const std::size_t count : {std::size_t{1}, std::size_t{4099}, std::size_t{1} << 26}) {
    CAPTURE(count);
    const auto bytes = bytes_from(count, 3);
    const Buffer there = inside(gpu().stream).allocate(count);
    const Buffer across = inside(gpu().stream).allocate(count);
    {
      auto given_up = bytes;  // not pinned: may go, or change, when the call is over
      gpu().stream.copy(there.data(), given_up.data(), count);
      std::fill(given_up.begin(), given_up.end(), std::byte{0});
    }
    gpu().stream.copy(across.data(), there.data(), count);
    CHECK(read(across) == bytes);

    const Buffer pinned = inside(gpu().stream).allocate_pinned(count);
    CHECK(pinned.kind() == DeviceKind::cpu);
    CHECK(std::all_of(pinned.data(), pinned.data() + count, [](std::byte byte) { return byte == std::byte{0}; }));
    gpu().stream.copy(pinned.data(), across.data(), count);
    gpu().stream.synchronize();
    CHECK(std::memcmp(pinned.data(), bytes.data(), count) == 0);
    gpu().stream.fill_zero(there.data(), count);
    gpu().stream.copy(there.data(), pinned.data(), count);
    CHECK(read(there) == bytes);
  }
  CHECK(inside(gpu().stream).allocate_pinned(0).bytes() == 0);
}

TEST_CASE("pinned memory is zero, also where some was used before") {
  for (int again = 0; again < 3; ++again)
    for (const std::size_t count : {std::size_t{1}, std::size_t{4099}, std::size_t{1} << 20}) {
      const Buffer pinned = inside(gpu().stream).allocate_pinned(count);
      CHECK(std::all_of(pinned.data(), pinned.data() + count, [](std::byte byte) { return byte == std::byte{0}; }));
      std::memset(pinned.data(), 0x5a, count);
    }
}

TEST_CASE("a thread whose current GPU is another uses that of its stream") {
  if (cuda_device_count() < 2) return;
  const auto device = make_cuda_device(1);
  const auto stream = device->make_stream();
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::cuda, {}, *stream);
  const auto ones = [&] { return Tensor::copy_of(ops::filled(DType::f32, {300}, 1).view(), *stream); };
  const Tensor one = ones(), two = ones();
  bool right = false;
  // New threads begin with GPU 0, this one with a launch.
  std::thread{[&] { kernels->add(two.view(), one.view()); }}.join();
  CHECK(all_are(two, 2));
  std::thread{[&] {
    const Tensor sum = Tensor::zeros(DType::f32, {300}, *stream);
    const Tensor added = ones();
    kernels->add(sum.view(), added.view());
    right = all_are(sum, 1);
  }}.join();
  CHECK(right);
  make_cuda_device(0);  // which the other tests have
}

TEST_CASE("zeros fill the range that was asked for") {
  const auto bytes = bytes_from(1000, 5);
  const Buffer memory = inside(gpu().stream).allocate(bytes.size());
  gpu().stream.copy(memory.data(), bytes.data(), bytes.size());
  gpu().stream.fill_zero(memory.data() + 7, 500);
  auto expected = bytes;
  std::fill_n(expected.begin() + 7, 500, std::byte{0});
  CHECK(read(memory) == expected);
}

TEST_CASE("an event is done when the work before it is", "[large]") {
  const auto stream = gpu().device.make_stream();
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::cuda, {}, *stream);
  const auto before = inside(*stream).record();
  before->synchronize();
  CHECK(before->done());
  const Tensor sum = slow_count(*stream, *kernels, 100);
  const auto after = inside(*stream).record();
  after->synchronize();
  CHECK(after->done());
  const auto other = gpu().device.make_stream();  // not ordered with the first, nor need it be any more
  check_copied_by(*other, sum, 100);
}

TEST_CASE("a stream that waits for an event finds what was enqueued before it, and the host goes on", "[large]") {
  const auto first = gpu().device.make_stream();
  const auto second = gpu().device.make_stream();
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::cuda, {}, *first);
  const Tensor sum = slow_count(*first, *kernels, 1000);
  inside(*second).wait(*inside(*first).record());  // the event may go at once
  check_copied_by(*second, sum, 1000);

  // The host's work is done already: there is nothing to wait for.
  inside(*second).wait(*inside(Stream::host()).record());
  inside(Stream::host()).wait(*inside(*second).record());
}

TEST_CASE("memory that is given back may be used by what was enqueued before, and is had again after", "[large]") {
  const auto stream = gpu().device.make_stream();
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::cuda, {}, *stream);
  const std::int64_t count = most_blocks() * 1024;
  const Tensor sum = Tensor::zeros(DType::f32, {count}, *stream);
  const Tensor one = Tensor::copy_of(ops::filled(DType::f32, {1}, 1).view(), *stream);
  for (int i = 0; i < 10; ++i) {
    // Goes as soon as its addition is enqueued; the next is likely to be given the same place.
    const Tensor same = Tensor::copy_of(sum.view(), *stream);
    kernels->add(sum.view(), same.view());
    kernels->add(sum.view().slice(0, 1), one.view());
  }
  const auto values = sum.to_vector<float>();  // s := 2 s + 1 in the first element, zero in the others
  CHECK(values[0] == 1023);
  CHECK(values[1] == 0);
  CHECK(values.back() == 0);
}

TEST_CASE("memory outlives the stream that gave it") {
  auto stream = gpu().device.make_stream();
  const Buffer memory = inside(*stream).allocate(1000);
  const auto bytes = bytes_from(1000, 9);
  stream->copy(memory.data(), bytes.data(), bytes.size());
  stream.reset();
  CHECK(read(memory) == bytes);
}

TEST_CASE("reading a GPU's memory waits for every stream", "[large]") {
  const auto stream = gpu().device.make_stream();
  const auto kernels = ops::make_kernels(ops::Kernels::Choice::cuda, {}, *stream);
  CHECK(all_are(slow_count(*stream, *kernels, 1000), 1000));
}

TEST_CASE("memory that a GPU does not have is an error that says how much was asked for, and no more than that") {
  constexpr std::size_t far_too_much = std::size_t{1} << 42;
  CHECK_THROWS_AS(inside(gpu().stream).allocate(far_too_much), DeviceError);
  CHECK_THROWS_WITH(inside(gpu().stream).allocate(far_too_much),
                    Catch::Contains(std::to_string(far_too_much) + " bytes of memory"));
  CHECK(all_are(slow_count(gpu().stream, gpu().kernels, 3), 3));
}
