"""Views and controls of operators: apps, pool, queue, presets."""
