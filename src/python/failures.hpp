// lockstep's exceptions in Python, and Python's in the job.
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace lockstep::python {

/// With Python's lock, when the module is loaded: lockstep's exceptions become those of the module `lockstep`, of the
/// same names, also where torch's functions let them through. The text is kept. Other types of lockstep become
/// `lockstep.Error`.
void translate_failures();

/// LOCAL, from any thread. Keeps a failure that all ranks may know of: what Python makes of it is another object, and
/// where torch is in between, one of another type.
void remember(const std::exception_ptr& failure);

/// LOCAL, from any thread. The failure as torch, and autograd in particular, passes it on to Python: with its type. The
/// text also names the parameters if it is that of a sum of so many `gradients` of DistributedDataParallel.
std::exception_ptr for_torch(const std::exception_ptr& failure, std::int64_t gradients = 0);

/// LOCAL, without Python's lock. Ends the job because of an exception that leaves the program and says `text`: because
/// of the failure behind it, if one was remembered whose sentence the text has.
[[noreturn]] void end_job(const std::string& text) noexcept;

}  // namespace lockstep::python
