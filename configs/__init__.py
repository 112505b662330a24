"""One deployment is one YAML file: what is served, by which engines, within which bounds."""
