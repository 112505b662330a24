"""Assignment of conversations to workers: order of the queue, choice of the worker, estimates. Pure."""
