"""Failures of the parts of a deployment on one machine, each with the outcome that its callers may expect."""
