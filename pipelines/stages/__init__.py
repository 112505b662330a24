"""The stages of the voice pipelines: what a mode's picture shows is made here, each part once."""
