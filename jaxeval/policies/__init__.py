"""What acts: the policy contract, and scripted policies that demonstrate the tasks."""

from jaxeval.policies.policy import Act as Act
from jaxeval.policies.policy import Info as Info
from jaxeval.policies.policy import Observation as Observation
from jaxeval.policies.policy import Policy as Policy
from jaxeval.policies.policy import World as World
