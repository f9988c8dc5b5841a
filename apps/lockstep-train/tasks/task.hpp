// Training tasks: the seam between a run and the kinds of data and models.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <lockstep/models/fit/fit.hpp>
#include <lockstep/models/input/labelled_data.hpp>
#include <lockstep/models/nn/model.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-train/options/training_options.hpp"
#include "apps/lockstep-train/saved/model_description.hpp"
#include "apps/lockstep-train/saved/saved_model.hpp"
#include "apps/lockstep-train/tasks/model_memory.hpp"
#include "apps/lockstep-train/tasks/predictor.hpp"

namespace lockstep {

/// The data of a run, and the model that its options ask for.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;

  /// Views of the data. They live as long as the task.
  virtual FitOptions::Samples samples() const = 0;

  /// What was loaded, in a line for the log; empty if there is nothing to say.
  virtual std::string data_text() const { return {}; }

  /// Equal on two ranks if they loaded the same data.
  virtual std::uint64_t data_digest() const = 0;

  /// What rebuilds the model and reads other data for it (metadata_of).
  virtual ModelDescription description() const = 0;
  virtual const DataSchema& schema() const = 0;

  /// LOCAL. ConfigError if the model does not fit these data or, in a run of `fit`, does not fit into `room`. Without
  /// steps, `fit` stands for passes that only evaluate or predict.
  virtual void require_model_fits(const FitOptions& fit, const Room& room) const = 0;

  /// COLL. Creates the variables of the model, which lives as long as the task.
  virtual nn::Model& make_model(Strategy& strategy, std::shared_ptr<const ops::Kernels> kernels) = 0;

  /// LOCAL. Describes what in the data may have made a training diverge, as FitOptions has it.
  virtual std::string divergence_hint() const { return {}; }

  /// LOCAL. The text that the options ask the trained model to write; empty if none.
  virtual std::string write_sample() = 0;

  /// LOCAL. For a run whose data are what is to be predicted (TrainingOptions::predict). Lives as long as the task and
  /// its model.
  virtual std::unique_ptr<Predictor> make_predictor(Stream& stream) = 0;
};

/// Which data a run reads, and how.
struct DataRequest {
  bool test_only = false;  ///< LabelledData::Options::test_only
  /// Where an index of the data is kept (load_labelled_data_once). If empty, there is none.
  std::filesystem::path index_folder = {};
  /// Weights that the run goes on from, or uses. Data are read as those that their model was trained on; of one that
  /// does not say so, as older versions read them.
  std::optional<SavedModel> saved = {};
};

/// COLL in a run. Reads the data, or what is to be predicted. ConfigError if they, or the options of the model, are
/// wrong. All defaults in `options` that do not come from the data must be filled in, and `options` must outlive the
/// result. load_image_task fills in the number of classes, if it is empty. If it is not, the files of the parts that
/// are not asked for may be missing.
std::unique_ptr<TrainingTask> load_task(TrainingOptions& options, const DataRequest& request = {});
std::unique_ptr<TrainingTask> load_image_task(TrainingOptions& options, const DataRequest& request = {});
std::unique_ptr<TrainingTask> load_text_task(const TrainingOptions& options, const DataRequest& request = {});

/// COLL. The text that the model is asked to write, if its test loss after `step` is `loss`. The chief generates it;
/// the others wait. `step` is 0 if it is not known.
std::string write_sample(Strategy& strategy, TrainingTask& task, std::int64_t step, double loss);

}  // namespace lockstep
