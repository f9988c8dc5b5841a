// Groups of a C program: how they begin and end, and what each rank knows of them by itself.
#include <chrono>
#include <memory>
#include <string>

#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/lockstep.h>

#include "c/calls.hpp"
#include "c/live_groups.hpp"

// The functions themselves, which take a place.
#undef lockstep_group_create
#undef lockstep_group_create_f
#undef lockstep_group_free

namespace lockstep::in_c {
namespace {

void require_mpi() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  require<ContextError>(started, "MPI has not been started; expected MPI_Init before");
  require<ContextError>(!ended, "MPI has ended; expected the group before MPI_Finalize");
}

RuntimeOptions options_of(const lockstep_options* given, int communicator) {
  RuntimeOptions options;
  // Sums of memory of the host. A job that a C++ part of the program has begun may have GPUs.
  if (!Runtime::exists()) options.device = "cpu";
  options.communicator = communicator;
  options.on_failure = RuntimeOptions::OnFailure::report;
  if (!given) return options;
  require_size(*given, "LOCKSTEP_OPTIONS");
  options.stall_timeout = std::chrono::duration<double>{given->stall_timeout};
  if (given->on_lost)
    options.on_lost = [on_lost = given->on_lost, context = given->context](const std::string& sentence,
                                                                           Error::ExitCode code) {
      on_lost(static_cast<int>(code), sentence.c_str(), context);
    };
  return options;
}

/// `communicator` is called after it is known that MPI runs, without which it may end the process.
template <class Communicator>
int create(const char* call, const Communicator& communicator, const lockstep_options* options, lockstep_group** group,
           const char* at) {
  return code_of([&] {
    const Place place{at};
    if (group) *group = nullptr;
    in_call(call, place.here(), [&] {
      require(group, "the place for the group is NULL; expected the address of a handle");
      require_mpi();
      require_thread_of_groups();
      const PhaseAgain phase;
      auto made = std::make_unique<lockstep_group>(options_of(options, communicator()), place.here());
      made->ranks.name_phase({});
      *group = add_live_group(std::move(made));
    });
  });
}

}  // namespace
}  // namespace lockstep::in_c

using namespace lockstep::in_c;

int lockstep_group_create(MPI_Comm communicator, const lockstep_options* options, lockstep_group** group,
                          const char* at) {
  return create(
      "lockstep_group_create", [&] { return MPI_Comm_c2f(communicator); }, options, group, at);
}

int lockstep_group_create_f(MPI_Fint communicator, const lockstep_options* options, lockstep_group** group,
                            const char* at) {
  return create(
      "lockstep_group_create_f", [&] { return communicator; }, options, group, at);
}

int lockstep_group_free(lockstep_group** group, const char* at) {
  constexpr const char* call = "lockstep_group_free";
  return code_of([&] {
    const Place place{at};
    lockstep_group* const live = in_call(call, place.here(), [&] {
      require(group, "the place of the group is NULL; expected the address of a handle");
      return *group ? &live_group(*group) : nullptr;
    });
    if (!live) return;
    const auto require_no_models = [&] {
      require(live->models == 0, "{} models of the group live; expected lockstep_model_free before", live->models);
    };
    int ended = 0;
    MPI_Finalized(&ended);
    if (ended) {
      in_call(call, place.here(), require_no_models);
    } else {
      lockstep::Group ranks = place.on(live->ranks);
      prepare_in(ranks, call, place.here(), require_no_models);
      ranks.agree("the end of the group", place.here());
    }
    (void)take_live_group(*group);
    *group = nullptr;
  });
}

int lockstep_rank(const lockstep_group* group) {
  int rank = -1;
  (void)code_of([&] { rank = live_group(group).ranks.rank(); });
  return rank;
}

int lockstep_size(const lockstep_group* group) {
  int size = -1;
  (void)code_of([&] { size = live_group(group).ranks.size(); });
  return size;
}

int lockstep_phase(lockstep_group* group, const char* name) {
  return code_of([&] { name_phase(live_group(group), name ? name : ""); });
}
