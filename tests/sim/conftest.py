"""A Panda that stows parcels on MuJoCo, for the tests that ask for it. MuJoCo is imported only then."""

import pytest


@pytest.fixture(scope="module")
def panda():
    from jaxeval.sim.mujoco.embodiment import load_embodiment

    return load_embodiment("panda")


@pytest.fixture(scope="module")
def envs(panda):
    from jaxeval.sim.mujoco.environment import Environments
    from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW

    return Environments(PARCEL_STOW, panda)


@pytest.fixture(scope="module")
def expert(panda):
    from jaxeval.sim.mujoco.tasks.named import PARCEL_STOW

    return PARCEL_STOW.expert(panda)
