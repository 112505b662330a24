"""Deployments: one YAML file each, with what is served, the engines that serve it and the bounds."""
