"""Revisions of the schema, one file each, named after the revision."""
