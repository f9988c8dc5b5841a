#include "python/arrays.hpp"

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/group/group.hpp>

#include "python/call.hpp"
#include "python/completions.hpp"
#include "python/place.hpp"
#include "python/process.hpp"

namespace py = pybind11;

namespace lockstep::python {
namespace {

std::optional<DType> type_of(const py::array& array) {
  if (!array.dtype().attr("isnative").cast<bool>()) return {};
  const char kind = array.dtype().kind();
  const py::ssize_t bytes = array.itemsize();
  if (kind == 'f' && bytes == 4) return DType::f32;
  if (kind == 'f' && bytes == 8) return DType::f64;
  if (kind == 'i' && bytes == 4) return DType::i32;
  if (kind == 'i' && bytes == 8) return DType::i64;
  return {};
}

std::string text_of(const py::array& array) {
  return py::str(array.dtype()).cast<std::string>() + py::str(py::list(array.attr("shape"))).cast<std::string>();
}

/// Waits for a request of all ranks, which compares `text`. `memory` is what it uses: the request outlives a wait that
/// Ctrl-C ends.
void wait_for(const std::string& text, std::shared_ptr<void> memory,
              const std::function<Group::Request(Group&, const Here&)>& submit) {
  const py::gil_scoped_release without_lock;
  Process::require_own();
  const Here here = place_of_call();
  Process& process = *Process::current();
  Group told = process.make_group({}, here).group.anywhere(text);
  const auto call = std::make_shared<Call>(Call::Parts{.text = text,
                                                       .here = here,
                                                       .timeout = kBackendDefaultTimeout,
                                                       .finish = [memory = std::move(memory)] {},
                                                       .tasks = {std::make_shared<RequestTask>(submit(told, here))}});
  process.completions().add(call);
  call->wait({});
}

template <class T>
double exact_sum_of(const py::array& numbers) {
  const auto values = numbers.cast<py::array_t<T, py::array::c_style>>();
  ExactSum<T> sum;
  sum.add(std::span{values.data(), static_cast<std::size_t>(values.size())});
  const auto words = std::make_shared<typename ExactSum<T>::Words>(sum.words());
  wait_for("exact_sum: " + py::str(numbers.dtype()).cast<std::string>(), words,
           [&](Group& group, const Here& here) { return group.submit_all_reduce(std::span{*words}, {}, here); });
  return static_cast<double>(ExactSum<T>::of_words(*words).value());
}

}  // namespace

void all_reduce(py::array& array, const std::string& op) {
  const std::optional<DType> type = type_of(array);
  const bool is_exact = op == "exact_sum";
  if (!type || (is_exact && array.dtype().kind() == 'i'))
    throw InvalidArgument{fmt::format("all_reduce: {} of {}{}: expected float32, float64{}", op, text_of(array),
                                      bracketed(place_of_call()), is_exact ? "" : ", int32 or int64")};
  const auto bytes = static_cast<std::size_t>(array.nbytes());
  const auto memory = std::make_shared<Tensor>(Tensor::uninitialised(*type, {array.size()}));
  if (bytes > 0) std::memcpy(memory->view().data(), array.data(), bytes);
  wait_for(fmt::format("all_reduce: {} of {}", op, text_of(array)), memory, [&](Group& group, const Here& here) {
    return group.submit_all_reduce(memory->view(), {.op = is_exact ? ReduceOp::exact_sum : ReduceOp::sum}, here);
  });
  if (bytes > 0) std::memcpy(array.mutable_data(), memory->view().data(), bytes);
}

double exact_sum(const py::array& numbers) {
  const std::optional<DType> type = type_of(numbers);
  if (type == DType::f32) return exact_sum_of<float>(numbers);
  if (type == DType::f64) return exact_sum_of<double>(numbers);
  throw InvalidArgument{
      fmt::format("exact_sum of {}{}: expected float32 or float64", text_of(numbers), bracketed(place_of_call()))};
}

void same_on_all(const std::string& text) {
  wait_for("same_on_all: " + text, nullptr, [](Group& group, const Here& here) { return group.submit_barrier(here); });
}

}  // namespace lockstep::python
