"""A store in a new file, in memory where there is a tmpfs."""

import os
import shutil
import tempfile

import pytest

import pmindex

SMALL = 8 << 20


@pytest.fixture
def folder():
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = tempfile.mkdtemp(prefix="pmindex-python-", dir=place)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def path(folder):
    return os.path.join(folder, "test.pool")


@pytest.fixture
def store(path):
    with pmindex.Store(path, size=SMALL) as store:
        yield store
