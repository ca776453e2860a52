"""Reading and writing recorded episodes: the native store and the formats people have."""

from jaxeval.io.errors import InputError as InputError
from jaxeval.io.initial_condition import initial_condition_hash as initial_condition_hash
from jaxeval.io.initial_condition import initial_condition_id as initial_condition_id
from jaxeval.io.initial_condition import task_name as task_name
from jaxeval.io.maniskill import read_maniskill as read_maniskill
from jaxeval.io.recordings import read_recordings as read_recordings
from jaxeval.io.source import Source as Source
from jaxeval.io.source import bundled as bundled
from jaxeval.io.source import bundled_names as bundled_names
from jaxeval.io.source import bundled_path as bundled_path
from jaxeval.io.source import open_source as open_source
from jaxeval.io.store import Store as Store
from jaxeval.io.store import append_store as append_store
from jaxeval.io.store import open_store as open_store
from jaxeval.io.store import store_hash as store_hash
from jaxeval.io.store import write_store as write_store
