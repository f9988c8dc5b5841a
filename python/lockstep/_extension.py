"""The extension module, for the PyTorch that it was built for."""

import torch


def _minor(version):
    return version.split("+")[0].rsplit(".", 1)[0]


def _load():
    try:
        from . import _core
    except ImportError as error:
        if _built_for() not in (None, _minor(torch.__version__)):
            raise _other_version(_built_for()) from error
        raise
    if _minor(_core.torch_version) != _minor(torch.__version__):
        raise _other_version(_minor(_core.torch_version))
    return _core


def _built_for():
    """The minor version, even if the module cannot be loaded with another; None if nothing says it."""
    try:
        from ._built_for import torch_version
    except ImportError:
        return None
    return _minor(torch_version)


def _other_version(built_for):
    return ImportError(
        f"lockstep was built for PyTorch {built_for}, and this is {torch.__version__}; expected `pip install .` again in "
        "lockstep's sources, which builds it for this one"
    )


core = _load()
