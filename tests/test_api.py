"""The names that users import, and how little a policy needs."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import files
from pathlib import Path

import numpy as np
import pytest
import safetensors
from tasks import box, linear_policy

import valuedice as vd

SOURCE = Path(vd.__file__).parent


def test_every_public_name_can_be_had_and_no_module_hides_it():
    for name in vd.__all__:
        assert getattr(vd, name) is not None
        assert not [*SOURCE.glob(f"{name}.py"), *SOURCE.glob(name)]
    assert dir(vd) == sorted(vd.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = vd.nothing  # pyright: ignore[reportAttributeAccessIssue]


def loaded(code: str) -> set[str]:
    """The packages that a fresh process has loaded after this code."""
    code += "\nimport sys; print(*{name.partition('.')[0] for name in sys.modules})"
    return set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )


HEAVY = {"jax", "jaxlib", "optax", "gymnasium", "mujoco", "matplotlib", "rich", "tyro"}
ACT = "policy = vd.load_policy({path!r}); print(policy(np.ones(3)), policy(np.ones((2, 3)), False).shape)"


def test_the_package_the_command_line_and_a_policy_import_nothing_heavy(tmp_path):
    # The command line limits the threads before numpy is loaded.
    assert not loaded("import valuedice.cli") & (HEAVY | {"numpy"})
    linear_policy(box(3, 2)).save(tmp_path / "policy.safetensors")
    act = ACT.format(path=str(tmp_path))
    assert not loaded(f"import numpy as np, valuedice as vd; {act}") & HEAVY


def test_a_policy_needs_nothing_but_numpy_and_safetensors(tmp_path):
    policy = linear_policy(box(3, 2), slope=0.5)
    policy.save(tmp_path / "policy.safetensors")
    bare = tmp_path / "bare"
    bare.mkdir()
    metadata = next(Path(str(file.locate())) for file in files("valuedice") or () if file.name == "METADATA")
    library = Path(np.__file__).parent
    parts = [SOURCE, metadata.parent, library, Path(safetensors.__file__).parent]
    for part in (*parts, *library.parent.glob("numpy.libs")):
        (bare / part.name).symlink_to(part)
    # Without site-packages and PYTHONPATH, the current folder is all there is beside the standard library.
    code = f"import numpy as np, valuedice as vd; {ACT.format(path=str(tmp_path))}\nimport jax"
    done = subprocess.run([sys.executable, "-SEc", code], cwd=bare, capture_output=True, text=True)
    assert done.stdout == f"{policy(np.ones(3))} (2, 2)\n"
    assert done.stderr.endswith("No module named 'jax'\n")
