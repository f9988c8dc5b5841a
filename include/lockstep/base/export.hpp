// What libraries show to programs: everything else in them is hidden.
#pragma once

/// Before a function or a variable, and in a class between `class` and its name: it is there for programs that link the
/// library. Exceptions have it, too, since whoever catches one must know the same type. What a header defines needs
/// none.
#define LOCKSTEP_API [[gnu::visibility("default")]]
