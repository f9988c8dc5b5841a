// lockstep._records, for the Python of the package alone. Apart from _core: only a program that records its run loads
// liblockstep-models.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <lockstep/core/base/here.hpp>
#include <lockstep/models/record/run_record.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/loaded_part.hpp"

namespace py = pybind11;
using lockstep::RunRecord;

namespace {

const lockstep::LoadedPart part{"lockstep._records", LOCKSTEP_VERSION};

/// A record of a job, and the strategy that it needs. Never destroyed: a failure that ends the job is noted in the
/// folder, however long Python keeps the object.
class Record {
 public:
  Record(const lockstep::Group& group, const lockstep::Here& here, RunRecord::Options options)
      : strategy_{group}, record_{strategy_, std::move(options), here} {}

  RunRecord& operator*() { return record_; }

 private:
  lockstep::Strategy strategy_;
  RunRecord record_;
};

}  // namespace

// The name that the build gives the module.
PYBIND11_MODULE(_records, module) {
  const py::call_guard<py::gil_scoped_release> without_lock;
  py::class_<Record, std::unique_ptr<Record, py::nodelete>>(module, "Record")
      .def(py::init([](const lockstep::Group& group, const lockstep::Here& here, const std::string& folder,
                       std::optional<std::int64_t> resume_after, const std::string& about, bool trace) {
             return new Record{group,
                               here,
                               {.folder = folder,
                                .resume_after = resume_after,
                                .trace = trace,
                                .about = about,
                                .folder_name = "lockstep.torch.record:",
                                .resume_name = "resume_after"}};
           }),
           without_lock)
      .def(
          "step",
          [](Record& record, std::int64_t step, double loss, std::int64_t samples, std::int64_t epoch,
             std::optional<double> learning_rate, std::optional<double> gradient_norm) {
            (*record).step(step, {loss, samples, epoch, learning_rate, gradient_norm});
          },
          without_lock)
      .def(
          "evaluation",
          [](Record& record, std::int64_t step, double loss, std::optional<double> accuracy, double seconds,
             std::int64_t epoch) {
            (*record).evaluation(step, {loss, accuracy, seconds, epoch});
          },
          without_lock)
      .def(
          "checkpoint",
          [](Record& record, std::int64_t step, double seconds, const std::string& path) {
            (*record).checkpoint(step, seconds, path);
          },
          without_lock)
      .def(
          "stop", [](Record& record, std::int64_t step) { (*record).stop(step); }, without_lock)
      .def(
          "finish", [](Record& record, const std::string& result) { (*record).finish(result); }, without_lock);
}
