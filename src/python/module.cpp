// lockstep._core, for the Python of the package alone.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <lockstep/core/base/here.hpp>
#include <lockstep/core/order/range.hpp>
#include <lockstep/job/runtime/runtime.hpp>
#include <lockstep/sync/group/group.hpp>

#include "core/base/loaded_part.hpp"
#include "core/order/sample_order.hpp"
#include "python/around_backend.hpp"
#include "python/arrays.hpp"
#include "python/backend.hpp"
#include "python/failures.hpp"
#include "python/future.hpp"
#include "python/place.hpp"
#include "python/process.hpp"
#include "python/python_lock.hpp"
#include "python/store.hpp"

namespace py = pybind11;
using namespace lockstep::python;
using lockstep::RuntimeOptions;
using std::chrono::milliseconds;

namespace {

const lockstep::LoadedPart part{"lockstep._core", LOCKSTEP_VERSION};

Process& of_job() {
  Process::require_own();
  return *Process::current();
}

/// Runtime::working_alone, for as long as Python keeps it.
class Alone {
 public:
  Alone() : alone_{of_job().working_alone()} {}

 private:
  std::shared_ptr<const void> alone_;
};

}  // namespace

// The name that the build gives the module.
PYBIND11_MODULE(_core, module) {
  module.attr("torch_version") = LOCKSTEP_TORCH_VERSION;
  translate_failures();
  define_future(module);
  Interrupts::find_main_thread();

  const py::call_guard<py::gil_scoped_release> without_lock;
  module.def("set_library_folders", &set_library_folders);
  module.def(
      "start",
      [](double stall_seconds, bool only_warns) {
        using OnStall = RuntimeOptions::OnStall;
        const Process& process =
            Process::start(std::chrono::duration<double>{stall_seconds}, only_warns ? OnStall::observe : OnStall::end);
        return std::pair{process.rank(), process.size()};
      },
      without_lock);
  py::class_<Alone>(module, "Alone", "While it lives, this rank may keep the others waiting.").def(py::init<>());
  module.def("has_started", [] { return Process::current() != nullptr; });
  module.def(
      "end_python", [] { return Process::current()->end_python(); }, without_lock);
  module.def(
      "end_job", [](const std::string& text) { end_job(text); }, without_lock);

  module.def("future_of", &future_of);
  module.def("all_reduce", &all_reduce);
  module.def("exact_sum", &exact_sum);
  module.def("same_on_all", &same_on_all);

  // For lockstep._records.
  py::class_<lockstep::Here>(module, "Here");
  module.def("place_of_call", &place_of_call);
  py::class_<lockstep::Group>(module, "Group")
      .def(py::init([] { return of_job().make_group(of_job().all_ranks(), place_of_call()).group; }), without_lock);

  module.def("shards_of_rank", [](int shards, int ranks, int rank) {
    const lockstep::Range own = lockstep::Range::of_rank(shards, ranks, rank);
    return std::pair{own.first, own.last};
  });
  module.def("rows_of_shard", [](std::int64_t batch, int shards, std::int64_t shard) {
    const lockstep::Range rows = lockstep::Range::of_shard(batch, shards, shard);
    return std::pair{rows.first, rows.last};
  });
  module.def("sample_order", &lockstep::sample_order);

  py::class_<JobStore, c10::intrusive_ptr<JobStore>>(module, "Store",
                                                     py::module_::import("torch._C._distributed_c10d").attr("Store"))
      .def(py::init([](milliseconds timeout) { return c10::make_intrusive<JobStore>(timeout); }));
  py::class_<AgreedBackend, c10::intrusive_ptr<AgreedBackend>>(
      module, "Backend", py::module_::import("torch._C._distributed_c10d").attr("Backend"))
      .def(py::init([](std::string name, std::vector<int> ranks, milliseconds timeout) {
             return c10::make_intrusive<AgreedBackend>(std::move(name), std::move(ranks), timeout);
           }),
           without_lock)
      .def("sum_over_shards", &AgreedBackend::sum_over_shards, without_lock)
      .def("agree", &AgreedBackend::agree, without_lock);
  py::class_<AroundBackend, c10::intrusive_ptr<AroundBackend>, AgreedBackend>(module, "AroundBackend")
      .def(py::init([](std::string name, std::vector<int> ranks, milliseconds timeout, AroundBackend::Inner inner) {
             return c10::make_intrusive<AroundBackend>(std::move(name), std::move(ranks), timeout, std::move(inner));
           }),
           without_lock);
}
