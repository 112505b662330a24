"""A language model in a worker of this deployment, by the worker link."""
