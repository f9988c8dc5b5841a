// One training a folder of checkpoints.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "core/base/parts.hpp"
#include "sync/checkpoint/exclusive_use.hpp"

namespace lockstep {

/// How long to wait for a process that still uses what this one needs: under lockstep-run, the ranks of a job that was
/// killed may be ending.
LOCKSTEP_PARTS_API std::chrono::milliseconds patience_with_other_jobs();

/// LOCAL. Makes `folder` if it is not there. Everything in this process that writes to it shares the use of it, by
/// `.lock`, or by `.lease`, in it. `name` begins the messages. Throws and blocks as ExclusiveUse does.
LOCKSTEP_PARTS_API std::shared_ptr<ExclusiveUse> lock_folder(
    const std::filesystem::path& folder, const std::string& name,
    std::chrono::milliseconds patience = patience_with_other_jobs());

}  // namespace lockstep
