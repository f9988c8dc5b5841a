#include <algorithm>
#include <exception>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <lockstep/core/base/log.hpp>
#include <lockstep/job/runtime/runtime.hpp>

#include "core/base/excerpt.hpp"
#include "core/base/exit_code.hpp"
#include "core/base/open_line.hpp"
#include "core/comm/backends.hpp"
#include "core/comm/communicator.hpp"
#include "core/control/channel.hpp"
#include "core/control/exceptions.hpp"
#include "core/control/fault_variable.hpp"
#include "core/control/meeting_point.hpp"
#include "core/watch/kept_signals.hpp"
#include "core/watch/question_signal.hpp"
#include "core/watch/report_claim.hpp"
#include "job/runtime/mpi_session.hpp"
#include "job/runtime/runtime_parts.hpp"
#include "job/runtime/siblings.hpp"
#include "sync/reduce/reduction_choice.hpp"
#include "sync/strategy/inside.hpp"

namespace lockstep {

namespace {

void require_only_one() {
  if (JobEnd::exists())
    throw ContextError{
        "a second Runtime in a process that has one; expected the first to be destroyed before, "
        "or a Runtime with options alone, which shares its job"};
}

/// Ends a job whose ranks cannot tell each other of a failure.
[[noreturn]] void end_unstarted(const std::exception_ptr& failure) {
  const int code = static_cast<int>(exit_code_of(failure));
  if (claim_report(nullptr, code)) {
    bool is_alone = false;
    try {
      const std::string line = "lockstep: error: " + message_of(failure);
      is_alone = ranks_on_this_node() <= 1;
      print_last_line(line, code);
    } catch (const std::exception&) {
      print_last_line("lockstep: error: no memory is left", code);
    }
    if (!is_alone) std::this_thread::sleep_for(until_claim_is_seen);
  }
  MpiSession::abort_job(code);
}

/// The parts of a runtime that the program makes by hand. What only this process lacks, such as a thread, ends the job:
/// the others cannot be told before they know each other. Other mistakes are the program's, on every rank.
template <class Make>
auto made_or_ended(Make&& make) {
  try {
    return make();
  } catch (const InvalidArgument&) {
    throw;
  } catch (const ContextError&) {
    throw;
  } catch (const ConfigError&) {
    throw;
  } catch (const std::exception&) {
    end_unstarted(std::current_exception());
  }
}

/// Whether the program has started MPI. A runtime that is made too late says so itself.
bool owns_mpi() {
  try {
    return MpiSession::has_been_started();
  } catch (const ContextError&) {
    return false;
  }
}

/// Takes part in a job that others begin, to its end, and fails there.
[[noreturn]] void refuse_with_others(std::unique_ptr<ControlChannel> channel, std::span<const int> world_ranks,
                                     std::exception_ptr wrong, const Here& here) {
  {
    MeetingPoint meeting{std::move(channel),
                         plain_names(static_cast<int>(world_ranks.size()), {world_ranks.begin(), world_ranks.end()})};
    try {
      meeting.fail(wrong, here);
    } catch (const Error&) {
      wrong = std::current_exception();
    }
    for (bool all_here = false; !all_here;) {
      try {
        (void)meeting.leave_job(here, false);
        all_here = true;
      } catch (const PeerError&) {  // others fail, too, and come then
      } catch (const MismatchError&) {
      }
    }
  }
  std::rethrow_exception(wrong);
}

/// What else the options of all ranks have in common.
std::string about_planes(const RuntimeOptions& options) {
  return fmt::format("device {}{}{}, {}", options.device,
                     options.devices.empty() ? "" : fmt::format(" {}", options.devices),
                     options.allow_shared_gpu ? " that may be shared" : "", describe(options.reductions));
}

}  // namespace

NcclEnvironment::NcclEnvironment(const RuntimeOptions& options) {
  if (options.allow_shared_gpu && !options.communicator) allow_shared_gpu();
}

Runtime::Impl::Impl(int& argc, char**& argv, const RuntimeOptions& given)
    : nccl_environment{given}, mpi{argc, argv, given} {}

Runtime::Impl::~Impl() {
  mpi.finish(JobEnd::EndOfMpi::runtime);
}

std::shared_ptr<Runtime::Impl> Runtime::Impl::without_arguments(const RuntimeOptions& given) {
  const bool has_mpi = MpiSession::has_been_started();
  if (const auto shared = of_process.lock(); shared && JobEnd::exists()) {
    if (!MpiSession::may_call_mpi())
      throw ContextError{
          "a Runtime on another thread than the first, which alone may call this MPI; expected that one"};
    return shared;
  }
  require_only_one();
  if (!has_mpi)
    throw InvalidArgument{"a Runtime without argc and argv in a program that has not started MPI; expected MPI_Init"};
  int argc = 0;
  char** argv = nullptr;
  return std::make_shared<Impl>(argc, argv, given);
}

std::weak_ptr<Runtime::Impl> Runtime::Impl::of_process;

void Runtime::Impl::start(const std::function<RuntimeOptions()>& make_options) {
  const auto make_valid_options = [&] {
    RuntimeOptions made = make_options();
    require_valid(made.reductions);
    return made;
  };
  mpi.begin(make_valid_options, about_planes);
  mpi.together("making the data plane", [&] {
    group = std::make_unique<ReplicaGroup>(mpi.job, make_mpi_communicator(mpi.options.communicator));
  });
  bind();
  mpi.watch_to_the_end();
  strategy.emplace(strategy_on(*group, mpi.options.reductions));
}

Runtime::Runtime(int& argc, char**& argv, RuntimeOptions options)
    : Runtime{(require_only_one(), made_or_ended([&] { return std::make_shared<Impl>(argc, argv, options); }))} {
  impl_->mpi.loss.add(this, options.on_lost);
  impl_->start([&] { return options; });
}

Runtime::Runtime(RuntimeOptions options, Here here)
    : Runtime{made_or_ended([&] { return Impl::without_arguments(options); })} {
  impl_->mpi.loss.add(this, options.on_lost);
  shares_job_ ? share(options, here) : impl_->start([&] { return options; });
}

Runtime::Runtime(std::shared_ptr<Impl> impl) : impl_{std::move(impl)}, shares_job_{impl_->has_runtime} {
  impl_->has_runtime = true;
  Impl::of_process = impl_;
}

struct Runtime::Part {
  Strategy strategy;
  ReductionOptions reductions;
};

/// As a group in the job.
void Runtime::share(const RuntimeOptions& options, const Here& here) {
  require_valid(options.reductions);
  const DeviceKind kind = impl_->device->kind();
  if (const DeviceRequest requested = parse_device_request(options.device, "device"); requested.value_or(kind) != kind)
    throw InvalidArgument{
        fmt::format("a Runtime with device {} in a process whose job has {}; expected the same, or auto",
                    options.device, name_of(DeviceRequest{kind}))};
  const Group ranks = options.communicator ? group_of_part(*options.communicator, here) : impl_->strategy->ranks();
  part_ = std::make_unique<Part>(Strategy{ranks, options.reductions, here}, options.reductions);
}

/// As `group`. A rank that is not in the job begins one of its own, and learns there that this fails.
Group Runtime::group_of_part(int communicator, const Here& here) {
  const std::vector<int> world_ranks = MpiSession::world_ranks_of(communicator, "RuntimeOptions::communicator");
  std::vector<int> ranks;
  std::exception_ptr wrong;
  try {
    ranks = impl_->ranks_of_job(communicator);
  } catch (const InvalidArgument&) {
    wrong = std::current_exception();
  }
  if (wrong) refuse_with_others(make_mpi_channel(communicator), world_ranks, wrong, here);
  return impl_->strategy->ranks().subset(ranks, here);
}

bool Runtime::exists() {
  return JobEnd::exists();
}

void Runtime::end_job(const std::exception_ptr& failure) {
  if (const auto impl = Impl::of_process.lock(); impl && JobEnd::exists()) impl->mpi.end.because_of(failure);
  end_unstarted(failure);
}

Runtime::~Runtime() {
  if (impl_->mpi.loss.are_called_here()) {
    // The watchdog's thread ends the process, and cannot wait for itself, nor for what other threads do with the job.
    static auto& left = *new std::vector<std::pair<std::shared_ptr<Impl>, std::unique_ptr<Part>>>;
    left.emplace_back(std::move(impl_), std::move(part_));
    return;
  }
  impl_->mpi.loss.remove(this);
  const bool is_last = impl_.use_count() == 1;
  if (std::uncaught_exceptions() > exceptions_before_) {
    // A destructor cannot see the exception, only whether all ranks know of it.
    if (is_last || !shares_job_) impl_->mpi.end.after_unknown();
  } else if (is_last && impl_->mpi.job->rank() == 0 && !impl_->mpi.meeting().failure() && take_unread_fault()) {
    log::warning(
        fmt::format("LOCKSTEP_FAULT is '{}', but nothing failed: this program injects no faults; lockstep-train does, "
                    "while it trains",
                    excerpt(fault_variable())));
  }
}

Strategy& Runtime::strategy() {
  return part_ ? part_->strategy : *impl_->strategy;
}

Group Runtime::group() {
  return strategy().ranks();
}

Group Runtime::group(int communicator, Here here) {
  return impl_->strategy->ranks().subset(impl_->ranks_of_job(communicator), here);
}

std::vector<int> Runtime::Impl::ranks_of_job(int communicator) const {
  const std::vector<int>& of_job = mpi.session.world_ranks();  // empty if all of the world are
  std::vector<int> ranks;
  for (const int world_rank : MpiSession::world_ranks_of(communicator, "the communicator of a group")) {
    const auto found = std::ranges::find(of_job, world_rank);
    if (!of_job.empty() && found == of_job.end())
      throw InvalidArgument{
          fmt::format("the communicator of a group has rank {} of MPI_COMM_WORLD, which is not in the "
                      "runtime's; expected a part of that",
                      world_rank)};
    ranks.push_back(of_job.empty() ? world_rank : static_cast<int>(found - of_job.begin()));
  }
  return ranks;
}

Strategy Runtime::make_strategy(Here here) {
  return make_strategy(part_ ? part_->reductions : impl_->mpi.options.reductions, here);
}
Strategy Runtime::make_strategy(const ReductionOptions& reductions, Here here) {
  return strategy().make_sibling(reductions, here);
}

int Runtime::rank() const {
  return part_ ? part_->strategy.rank() : impl_->mpi.job->rank();
}
int Runtime::size() const {
  return part_ ? part_->strategy.num_replicas_in_sync() : impl_->mpi.job->size();
}

std::shared_ptr<const void> Runtime::working_alone() {
  return std::shared_ptr<const MeetingPoint::Alone>{new MeetingPoint::Alone{impl_->mpi.meeting().working_alone()}};
}

std::string Runtime::device_name() const {
  return impl_->device->name();
}

std::chrono::nanoseconds Runtime::watchdog_cpu_time() const {
  return impl_->mpi.watchdog ? impl_->mpi.watchdog->cpu_time() : std::chrono::nanoseconds{0};
}

/// The part of run_program from the start of MPI to its end. `wrong`, an error in the options, is reported once for the
/// job, so only after the ranks know each other.
int Runtime::run_job(int& argc, char**& argv, const RuntimeOptions& options, const std::exception_ptr& wrong,
                     const std::function<void(Runtime&)>& body) {
  require_only_one();
  std::shared_ptr<Impl> impl;
  try {
    impl = std::make_shared<Impl>(argc, argv, options);
  } catch (const std::exception&) {
    end_unstarted(std::current_exception());
  }
  Impl& parts = *impl;
  // The exit code is all that the program gets.
  parts.mpi.end.speak();
  try {
    parts.start([&] {
      if (wrong) std::rethrow_exception(wrong);
      return options;
    });
    Runtime runtime{std::move(impl)};
    parts.mpi.loss.add(&runtime, options.on_lost);
    try {
      body(runtime);
    } catch (...) {
      const Error::ExitCode code = parts.mpi.end.after(std::current_exception());
      return static_cast<int>(code);
    }
    return static_cast<int>(Error::ExitCode::done);
  } catch (...) {
    return static_cast<int>(parts.mpi.end.after(std::current_exception()));
  }
}

int Runtime::run(int& argc, char**& argv, const std::function<RuntimeOptions()>& options,
                 const std::function<void(Runtime&)>& body) {
  // From the very beginning: a rank that ends as soon as it is told to could be taken for the cause.
  std::optional<KeptSignals> signals;
  try {
    signals.emplace();
    catch_question_signal();
  } catch (const std::exception&) {
    end_unstarted(std::current_exception());
  }
  RuntimeOptions made;
  std::exception_ptr wrong;
  try {
    made = options();
  } catch (...) {
    wrong = std::current_exception();
  }
  // The options would have said which ranks there are. The others may be anywhere in the program.
  if (wrong && owns_mpi()) end_unstarted(wrong);
  if (made.communicator) {
    signals.reset();
    release_question_signal();
  }
  return run_job(argc, argv, made, wrong, body);
}

int run_program(int& argc, char**& argv, const RuntimeOptions& options, const std::function<void(Runtime&)>& body) {
  if (options.communicator) return Runtime::run_job(argc, argv, options, nullptr, body);
  return Runtime::run(
      argc, argv, [&] { return options; }, body);
}

}  // namespace lockstep
