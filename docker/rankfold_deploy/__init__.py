"""Builds what is not written by hand in `docker/`: dashboards, and the rules for Kubernetes."""
