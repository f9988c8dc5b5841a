// lockstep._records, for the package's Python. Apart from _core: only a program that records loads liblockstep-models.
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/models/record/run_record.hpp>
#include <lockstep/sync/group/group.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "core/base/loaded_part.hpp"

namespace py = pybind11;
using lockstep::RunRecord;

namespace {

const lockstep::LoadedPart part{"lockstep._records", LOCKSTEP_VERSION};

/// A record, and the strategy that it needs. It ends with the run: another one may then have the folder.
class Record {
 public:
  Record(const lockstep::Group& group, const lockstep::Here& here, const std::string& folder,
         std::optional<std::int64_t> resume_after, const std::string& about, bool trace)
      : strategy_{group},
        record_{std::in_place, strategy_,
                RunRecord::Options{.folder = folder,
                                   .resume_after = resume_after,
                                   .trace = trace,
                                   .about = about,
                                   .folder_name = "lockstep.torch.record:",
                                   .resume_name = "resume_after"},
                here} {}

  void step(std::int64_t step, double loss, std::int64_t samples, std::int64_t epoch,
            std::optional<double> learning_rate, std::optional<double> gradient_norm) {
    under_way().step(step, {loss, samples, epoch, learning_rate, gradient_norm});
  }
  void evaluation(std::int64_t step, double loss, std::optional<double> accuracy, double seconds, std::int64_t epoch) {
    under_way().evaluation(step, {loss, accuracy, seconds, epoch});
  }
  void checkpoint(std::int64_t step, double waited, const std::string& at) { under_way().checkpoint(step, waited, at); }
  void stop(std::int64_t step) {
    under_way().stop(step);
    record_.reset();
  }
  void finish(const std::string& result) {
    under_way().finish(result);
    record_.reset();
  }

 private:
  RunRecord& under_way() {
    if (!record_) throw lockstep::InvalidArgument{"lockstep.torch.record: the run has ended; expected another record"};
    return *record_;
  }

  lockstep::Strategy strategy_;
  std::optional<RunRecord> record_;
};

}  // namespace

PYBIND11_MODULE(_records, module) {
  const py::call_guard<py::gil_scoped_release> without_lock;
  py::class_<Record>(module, "Record")
      .def(py::init<const lockstep::Group&, const lockstep::Here&, std::string, std::optional<std::int64_t>,
                    std::string, bool>(),
           without_lock)
      .def("step", &Record::step, without_lock)
      .def("evaluation", &Record::evaluation, without_lock)
      .def("checkpoint", &Record::checkpoint, without_lock)
      .def("stop", &Record::stop, without_lock)
      .def("finish", &Record::finish, without_lock);
}
