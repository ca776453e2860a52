"""The native store: a folder of plain parquet. What is public of it."""

from jaxeval.io.store.store import Compression as Compression
from jaxeval.io.store.store import Store as Store
from jaxeval.io.store.store import append_store as append_store
from jaxeval.io.store.store import open_store as open_store
from jaxeval.io.store.store import store_hash as store_hash
from jaxeval.io.store.store import write_store as write_store
