"""The examples of the README run."""

import os
import re

import pytest

README = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "README.md")


def examples():
    with open(README, encoding="utf-8") as file:
        return re.findall(r"^```python\n(.*?)^```", file.read(), re.S | re.M)


def test_there_are_examples():
    assert len(examples()) >= 2


@pytest.mark.parametrize("example", examples(), ids=lambda text: text.split("\n")[0][:40])
def test_it_runs(example, folder, monkeypatch):
    monkeypatch.chdir(folder)
    exec(compile(example, "README.md", "exec"), {"__name__": "example"})
