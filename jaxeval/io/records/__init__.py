"""Evaluation records: what came of every episode of every policy, a row an episode. What is public of them."""

from jaxeval.io.records.records import ALIASES as ALIASES
from jaxeval.io.records.records import STAGE as STAGE
from jaxeval.io.records.records import SUCCESS as SUCCESS
from jaxeval.io.records.records import Records as Records
from jaxeval.io.records.records import Where as Where
from jaxeval.io.records.records import in_package as in_package
from jaxeval.io.records.records import read_records as read_records
from jaxeval.io.records.records import shortened as shortened
from jaxeval.io.records.records import truth_of as truth_of
from jaxeval.io.records.records import without_repeats as without_repeats
