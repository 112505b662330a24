"""Phone calls around a pipeline: sessions, control, answering machines, the simulated phone."""
