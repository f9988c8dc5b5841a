// Checkpoints: the values of a strategy's variables and the state of its optimizers, in a file that does not depend on
// the number of ranks.
#pragma once

#include <filesystem>

#include <lockstep/core/base/export.hpp>
#include <lockstep/core/base/here.hpp>
#include <lockstep/sync/strategy/strategy.hpp>

namespace lockstep {

// A checkpoint is a file in the safetensors format: the length of a header (8 bytes, little-endian), the header (JSON
// with each tensor's name, type, shape and the place of its bytes), and the elements, little-endian and row-major. It
// has one entry for each variable, under Variable::name, and one for each existing piece of optimizer state, such as
// "w@momentum" and "optimizer@steps". Names depend on the order in which a program creates variables that ask for one
// name. The same values make the same bytes on any number of ranks. What some ranks saved can be restored by more
// ranks, by fewer, or by a program without any.
//
// Releases that did not make names unique saved programs only if no two variables had one name, so their files can be
// read, with one exception: they saved an unnamed variable under the empty name, which no variable has any
// more. To restore such a file, rename that entry to 'Variable'.
//
// Releases whose optimizers without a name counted their steps together saved one counter, "optimizer@steps", for all
// of them. Where such a file lacks "optimizer_1@steps" or a later one, that counter gets the value of
// "optimizer@steps", and one line warns of it: learning rates go on from where they were.
//
// Both functions require cross-replica context or the default one, and every variable must be sealed; otherwise
// ContextError, before any communication. MismatchError if ranks name different paths. A failure on the chief is a
// CheckpointError there, with one line that names the file, the entry and what was expected, and a PeerError with the
// same words on the other ranks.

/// COLL, blocking. Writes the variables of `strategy` and its optimizers' state to `path`: a mirrored variable with
/// its value, a sync-on-read one as a read combines it, which takes all ranks. Only the chief touches the file; the
/// others wait for it. The file replaces what was at `path` as a whole, or not at all. InvalidArgument for a
/// sync-on-read variable that cannot be read; CheckpointError if a variable has the name of a piece of optimizer state,
/// such as "w@momentum".
LOCKSTEP_API void save_checkpoint(Strategy& strategy, const std::filesystem::path& path, Here here = Here::current());

/// COLL, blocking. Sets the variables of `strategy` and its optimizers' state to the values in `path`, which only the
/// chief reads: a mirrored variable on every rank, a sync-on-read one as its assignment in cross-replica context does.
/// The file must have an entry of the right type and shape for each variable and each piece of optimizer state (but for
/// the counters above), and no other entries; otherwise nothing changes. The state of an optimizer that has not made a
/// step exists after Optimizer::prepare.
LOCKSTEP_API void restore_checkpoint(Strategy& strategy, const std::filesystem::path& path,
                                     Here here = Here::current());

}  // namespace lockstep
