"""Environment of alembic, run for each command; the connection and its transaction are the caller's."""

from alembic import context

from parley.session_store.schema import VERSION_TABLE, metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
