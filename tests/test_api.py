"""The names that users import."""

import subprocess
import sys

import pytest

import valuedice as vd


def test_every_public_name_can_be_had():
    for name in vd.__all__:
        assert getattr(vd, name) is not None


@pytest.mark.parametrize("first", ["valuedice.train", "valuedice.evaluate", "valuedice.collect"])
def test_importing_a_module_does_not_hide_the_function_of_its_name(first):
    code = f"import valuedice as vd, {first}; assert callable(vd.train) and callable(vd.evaluate)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = vd.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_importing_the_package_imports_neither_jax_nor_gymnasium():
    code = "import sys, valuedice; assert not {'jax', 'gymnasium'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
