"""Language model in a worker of this deployment, reached through the worker link."""
