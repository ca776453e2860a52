"""What acts: the policy contract, and scripted oracles that demonstrate the tasks."""

from jaxeval.policies.policy import Act as Act
from jaxeval.policies.policy import Observation as Observation
from jaxeval.policies.policy import Policy as Policy
from jaxeval.policies.scripted.arm import ARMS as ARMS
from jaxeval.policies.scripted.arm import Arm as Arm
from jaxeval.policies.scripted.oracle import oracle as oracle
